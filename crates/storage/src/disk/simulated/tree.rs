//! The names of files and directories, now and after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::file::SimulatedFile;
use crate::disk::Entry;

/// The directory that all others are in.
const ROOT: u64 = 0;

#[derive(Debug, Clone)]
pub(super) struct Tree {
    nodes: BTreeMap<u64, Node>,
    next: u64,
}

#[derive(Debug, Clone)]
enum Node {
    File(SimulatedFile),
    Directory(Directory),
}

#[derive(Debug, Clone, Default)]
struct Directory {
    now: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    /// Changes since the last sync, each as the names that it gave to nodes, or took away.
    changes: Vec<Vec<(String, Option<u64>)>>,
}

impl Directory {
    fn change(&mut self, change: Vec<(String, Option<u64>)>) {
        apply(&mut self.now, &change);
        self.changes.push(change);
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: &[(String, Option<u64>)]) {
    for (name, node) in change {
        match node {
            Some(node) => names.insert(name.clone(), *node),
            None => names.remove(name),
        };
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// The directory that a name is in, and the name there.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { nodes: BTreeMap::from([(ROOT, Node::Directory(Directory::default()))]), next: ROOT + 1 }
    }

    fn find(&self, name: &str) -> io::Result<u64> {
        let mut node = ROOT;
        for part in name.split('/').filter(|part| !part.is_empty()) {
            let Some(Node::Directory(directory)) = self.nodes.get(&node) else {
                return Err(io::ErrorKind::NotADirectory.into());
            };
            node = *directory.now.get(part).ok_or_else(missing)?;
        }
        Ok(node)
    }

    fn directory(&self, name: &str) -> io::Result<&Directory> {
        match &self.nodes[&self.find(name)?] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn directory_mut(&mut self, name: &str) -> io::Result<&mut Directory> {
        let node = self.find(name)?;
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn file(&self, name: &str) -> io::Result<&SimulatedFile> {
        match &self.nodes[&self.find(name)?] {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn file_mut(&mut self, name: &str) -> io::Result<&mut SimulatedFile> {
        let node = self.find(name)?;
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn used(&self) -> u64 {
        let bytes = |node: &Node| match node {
            Node::File(file) => file.data().len() as u64,
            Node::Directory(_) => 0,
        };
        self.nodes.values().map(bytes).sum()
    }

    pub(super) fn create(&mut self, name: &str) -> io::Result<()> {
        self.add(name, Node::File(SimulatedFile::default()))
    }

    pub(super) fn create_directory(&mut self, name: &str) -> io::Result<()> {
        self.add(name, Node::Directory(Directory::default()))
    }

    fn add(&mut self, name: &str, node: Node) -> io::Result<()> {
        let number = self.next;
        let (directory, name) = split(name);
        let directory = self.directory_mut(directory)?;
        if directory.now.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        directory.change(vec![(name.to_owned(), Some(number))]);
        self.nodes.insert(number, node);
        self.next += 1;
        Ok(())
    }

    /// Replaces or makes a file, durable in name and bytes; and the directory that it is in.
    pub(super) fn put(&mut self, name: &str, file: SimulatedFile) {
        let (directory, name) = split(name);
        if self.directory(directory).is_err() {
            let added = self.create_directory(directory).and_then(|()| self.sync_directory(""));
            added.expect("nothing but a directory has its name");
        }
        let number = self.next;
        let directory = self.directory_mut(directory).expect("it was made");
        directory.now.insert(name.to_owned(), number);
        directory.durable.insert(name.to_owned(), number);
        self.nodes.insert(number, Node::File(file));
        self.next += 1;
    }

    pub(super) fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.file_mut(name)?.append(bytes);
        Ok(())
    }

    pub(super) fn truncate(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        self.file_mut(name)?.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let node = self.find(from)?;
        if let Ok(Node::Directory(target)) = self.find(to).map(|target| &self.nodes[&target])
            && !target.now.is_empty()
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let ((directory, from), (same, to)) = (split(from), split(to));
        if directory != same {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let change = vec![(from.to_owned(), None), (to.to_owned(), Some(node))];
        self.directory_mut(directory)?.change(change);
        self.forget_unreachable();
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> io::Result<()> {
        let node = self.find(name)?;
        if let Node::Directory(directory) = &self.nodes[&node]
            && !directory.now.is_empty()
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (directory, name) = split(name);
        self.directory_mut(directory)?.change(vec![(name.to_owned(), None)]);
        Ok(())
    }

    pub(super) fn list(&self, directory: &str) -> io::Result<Vec<Entry>> {
        let entry = |(name, node): (&String, &u64)| Entry {
            name: name.clone(),
            is_directory: matches!(self.nodes[node], Node::Directory(_)),
        };
        Ok(self.directory(directory)?.now.iter().map(entry).collect())
    }

    pub(super) fn sync_directory(&mut self, name: &str) -> io::Result<()> {
        let directory = self.directory_mut(name)?;
        directory.durable = directory.now.clone();
        directory.changes.clear();
        self.forget_unreachable();
        Ok(())
    }

    /// Loses names that may be lost: see `SimulatedDisk`.
    pub(super) fn crash(&mut self, sector_bytes: usize, choose: &mut dyn FnMut(usize) -> usize) {
        for node in self.nodes.values_mut() {
            if let Node::Directory(directory) = node {
                for change in std::mem::take(&mut directory.changes) {
                    if choose(2) == 1 {
                        apply(&mut directory.durable, &change);
                    }
                }
                directory.now = directory.durable.clone();
            }
        }
        self.forget_unreachable();
        for node in self.nodes.values_mut() {
            if let Node::File(file) = node {
                file.crash(sector_bytes, choose);
            }
        }
    }

    /// Frees files that have no name and cannot get one back by a crash.
    fn forget_unreachable(&mut self) {
        let mut reachable = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(node) = open.pop() {
            if let Some(Node::Directory(directory)) = self.nodes.get(&node) {
                let changed = directory.changes.iter().flatten().filter_map(|(_, node)| node.as_ref());
                let named = directory.now.values().chain(directory.durable.values()).chain(changed);
                open.extend(named.copied().filter(|child| reachable.insert(*child)));
            }
        }
        self.nodes.retain(|node, _| reachable.contains(node));
    }

    pub(super) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let mut contents = BTreeMap::new();
        let mut open = vec![(String::new(), ROOT)];
        while let Some((path, node)) = open.pop() {
            match &self.nodes[&node] {
                Node::File(file) => {
                    contents.insert(path, file.data().to_vec());
                }
                Node::Directory(directory) => {
                    for (name, child) in &directory.now {
                        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                        open.push((path, *child));
                    }
                }
            }
        }
        contents
    }
}
