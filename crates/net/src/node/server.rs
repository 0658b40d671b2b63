//! A server: the shards of one process.

use core::ops::ControlFlow;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use libra_proto::{
    MemberEvent, MemoryLimit, Peer, Restoring, Server, ServerCommand, ServerEvent, ServerStatistics,
    Statistics,
};
use libra_storage::{Found, PlaceError, RowFiles, find, note_address, shard_directory};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::restoring::Announcer;
use super::{NodeError, NodeOptions, end_of, listen, runtime};
use crate::door::{Callers, Entrance, Tally};
use crate::driver::{Ports, drive_watched};
use crate::front::{Front, Shards};
use crate::links::Links;
use crate::storage::Storage;

/// A server that listens.
pub struct ServerNode {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    options: NodeOptions,
    data: Option<PathBuf>,
    /// The data directory goes with the process.
    is_temporary: bool,
    resumes: bool,
    found: Vec<Found>,
    row_files: Option<RowFiles>,
    shards: u16,
}

impl ServerNode {
    /// Listens for workers and switches at `address`; port 0 means any free one. It has one shard.
    pub fn bind(options: NodeOptions, address: Option<SocketAddr>) -> Result<Self, NodeError> {
        let runtime = runtime()?;
        let (listener, address) = listen(&runtime, address.map_or_else(|| options.any_port(), Ok)?)?;
        Ok(Self {
            runtime,
            listener,
            address,
            options,
            data: None,
            is_temporary: false,
            resumes: false,
            found: Vec::new(),
            row_files: None,
            shards: 1,
        })
    }

    /// The same, with a data directory: if there are shards in it whose process has ended, this one goes on with them, without `address` where
    /// they were, if it can listen there. Wherever it is, the others learn of it (rule V13). With a memory limit, in bytes, rows that are not used for long are in a file in the directory. While it reads them, which
    /// may take minutes, the controller is told so, and `on_restoring` is called every 10 s.
    pub fn bind_with_data(
        options: NodeOptions,
        address: Option<SocketAddr>,
        data: PathBuf,
        memory_limit: Option<u64>,
        on_restoring: impl FnMut(&Restoring) + Send + 'static,
    ) -> Result<Self, NodeError> {
        let row_files = row_files(&data, memory_limit)?;
        let mut announcer = Announcer::new(options.clone(), on_restoring);
        let found = find(&data, row_files.as_ref(), |shard| announcer.begin(shard))?;
        drop(announcer);
        let known = found.first().map(|found| found.recovered.restored.address());
        let node = match known.filter(|_| address.is_none()) {
            // The machine may be another, or another process may have the port.
            Some(known) => Self::bind(options.clone(), Some(known)).or_else(|_| Self::bind(options, None)),
            None => Self::bind(options, address),
        }?;
        let node = Self { data: Some(data), found, row_files, ..node };
        node.note_address().map_err(NodeError::io("cannot note the address in the data directory"))?;
        Ok(node)
    }

    /// The same, with a data directory, for a job that resumes: shards of the run before may be in it, and those of this one have their checkpoints behind them.
    pub fn bind_resuming(
        options: NodeOptions,
        data: PathBuf,
        memory_limit: Option<u64>,
    ) -> Result<Self, NodeError> {
        let row_files = row_files(&data, memory_limit)?;
        Ok(Self { data: Some(data), resumes: true, row_files, ..Self::bind(options, None)? })
    }

    /// The same, with a place that the caller removes when the server has ended: for checkpoints that are uploaded. It is made if the job
    /// needs it.
    #[must_use]
    pub fn with_temporary_data(self, data: PathBuf) -> Self {
        Self { data: Some(data), is_temporary: true, ..self }
    }

    /// Notes the address in the directories of the shards that it goes on with: so they are known as those of one process.
    fn note_address(&self) -> io::Result<()> {
        let data = self.data.iter();
        let shards = data.flat_map(|data| self.found.iter().map(move |found| (data, found)));
        for (data, Found { recovered, .. }) in shards {
            note_address(&shard_directory(data, recovered.restored.number()), self.address)?;
        }
        Ok(())
    }

    /// The same with so many shards, of which each has a thread. Shards that were found in the data directory are as many as they are.
    ///
    /// # Panics
    /// `shards` is 0.
    #[must_use]
    pub fn with_shards(self, shards: u16) -> Self {
        assert!(shards > 0, "a server has a shard");
        Self { shards, ..self }
    }

    /// Returns what its shards go on from, in words for a person; none for a new one.
    pub fn goes_on_from(&self) -> impl Iterator<Item = String> {
        self.found.iter().map(|Found { recovered, .. }| {
            format!("server {} goes on with {}", recovered.restored.number(), recovered.describe())
        })
    }

    /// Returns what the file system does not do that a memory limit wants, in words for a person.
    pub fn lacks(&self) -> Option<String> {
        self.row_files.as_ref().and_then(RowFiles::lacks)
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of its shards.
    pub fn shards(&self) -> u16 {
        u16::try_from(self.found.len()).ok().filter(|found| *found > 0).unwrap_or(self.shards)
    }

    /// Serves until the job is done, and everything is written that is to be kept.
    pub fn run(self, on_event: impl FnMut(&ServerEvent) + Send + 'static) -> Result<Statistics, NodeError> {
        let shards = self.shards();
        let address = self.options.known_as(self.address);
        let Self { runtime, listener, options, data, is_temporary, resumes, found, row_files, .. } = self;
        let mut found = found.into_iter();
        let mut shard = || -> Result<Shard, NodeError> {
            let found = found.next();
            // One that was found has its limit.
            let row_files = row_files.as_ref().filter(|_| found.is_none());
            let memory_limit = row_files.map(|files| files.limit_of_shard(shards)).transpose();
            let memory_limit = memory_limit.map_err(PlaceError::Rows)?;
            Ok(Shard {
                options: options.clone(),
                address,
                data: data.clone(),
                is_temporary,
                resumes,
                found,
                memory_limit,
                of_process: shards,
            })
        };
        if shards == 1 {
            let entrance = Entrance::Listener(listener, Callers::Clients, options.security.clone());
            return shard()?.run(&runtime, entrance, options.links(), on_event);
        }
        let shards: Vec<Shard> = (0..shards).map(|_| shard()).collect::<Result<_, _>>()?;
        run_all(&runtime, listener, shards, on_event)
    }
}

/// Files for the rows that have no place in memory, if there is a limit of it, in bytes.
fn row_files(data: &Path, memory_limit: Option<u64>) -> Result<Option<RowFiles>, NodeError> {
    let files = memory_limit.map(|bytes| RowFiles::new(data, bytes)).transpose();
    Ok(files.map_err(PlaceError::Rows)?)
}

/// Runs shards on a thread each, and their front on this one. Returns when all have ended, or one has failed: then the others are left to
/// the end of the process, which comes back with all of them, or to that of the job.
fn run_all(
    runtime: &Runtime,
    listener: TcpListener,
    shards: Vec<Shard>,
    on_event: impl FnMut(&ServerEvent) + Send + 'static,
) -> Result<Statistics, NodeError> {
    let (routes, tally) = (Arc::new(Shards::default()), Arc::<Tally>::default());
    let security = shards.first().map(|shard| shard.options.security.clone()).unwrap_or_default();
    let on_event = Arc::new(Mutex::new(on_event));
    let (ends, mut ended) = mpsc::unbounded_channel();
    for shard in shards {
        let (way, entrance) = Shards::way();
        if let Some(found) = &shard.found {
            routes.insert(found.recovered.restored.number(), way.clone());
        }
        let (routes, ends, on_event) = (Arc::clone(&routes), ends.clone(), Arc::clone(&on_event));
        // What the front turns away is reported by the shards, by whichever looks first.
        let links = shard.options.links().with_tally(Arc::clone(&tally));
        let run = move || {
            shard.run(&super::runtime()?, Entrance::Behind(entrance), links, |event| {
                if let ServerEvent::Member(MemberEvent::Started { you: Peer::Server(number) }) = event {
                    routes.insert(*number, way.clone());
                }
                on_event.lock().unwrap_or_else(PoisonError::into_inner)(event);
            })
        };
        let spawned = thread::Builder::new().name("libra-shard".to_owned()).spawn(move || {
            // None waits for it behind one that failed.
            let _ = ends.send(run());
        });
        spawned.map_err(NodeError::io("cannot start a thread"))?;
    }
    drop(ends);
    let finished = async {
        let mut sum = ServerStatistics::default();
        let mut drained: Option<Option<String>> = None;
        while let Some(ended) = ended.recv().await {
            match ended {
                Ok(Statistics::Server(statistics)) => sum += statistics,
                Ok(_) => {}
                // The others are drained, too, each at its time.
                Err(NodeError::Drained { unsaved }) => {
                    drained = Some(drained.flatten().or(unsaved));
                }
                Err(error) => return Err(error),
            }
        }
        drained.map_or(Ok(Statistics::Server(sum)), |unsaved| Err(NodeError::Drained { unsaved }))
    };
    runtime.block_on(async {
        let front = Front::new(listener, security, routes, tally);
        tokio::select! {
            ended = finished => ended,
            never = front.serve() => match never {},
        }
    })
}

/// A shard ready to run.
struct Shard {
    options: NodeOptions,
    address: SocketAddr,
    data: Option<PathBuf>,
    is_temporary: bool,
    resumes: bool,
    found: Option<Found>,
    memory_limit: Option<MemoryLimit>,
    /// Shards of its process.
    of_process: u16,
}

impl Shard {
    fn run(
        self,
        runtime: &Runtime,
        entrance: Entrance,
        links: Links,
        mut on_event: impl FnMut(&ServerEvent),
    ) -> Result<Statistics, NodeError> {
        let Self { options, address, data, is_temporary, resumes, found, memory_limit, of_process } = self;
        let (inbox, commands) = mpsc::unbounded_channel();
        let has_disk = data.is_some();
        let storage = Storage::new(data, resumes, address, inbox.clone());
        let mut storage = if is_temporary { storage.of_own_directory() } else { storage };
        let role = match found {
            Some(Found { recovered, disk }) => {
                let started = storage.go_on(disk, recovered.log);
                started.map_err(NodeError::io("cannot start the threads of the disk"))?;
                recovered.restored.finish(address)
            }
            None => {
                let new = Server::new(address).among(of_process);
                let new = match (has_disk, is_temporary) {
                    (true, true) => new.with_temporary_disk(),
                    (true, false) => new.with_disk(),
                    (false, _) => new,
                };
                match memory_limit {
                    Some(limit) => new.with_memory_limit(limit),
                    None => new,
                }
            }
        };
        let ports = Ports { entrance: Some(entrance), pulse: options.pulse(), ..Ports::new(links) };
        let role = role.with_http(options.http());
        let driven = drive_watched(role, ports, commands, options.inspections(), |event| {
            on_event(&event);
            match event {
                ServerEvent::Member(event) => return end_of(event, &options.drain),
                ServerEvent::Storage(request) => storage.carry_out(request),
                ServerEvent::StoreFailed { reason } => {
                    return ControlFlow::Break(Err(NodeError::failed(reason)));
                }
                ServerEvent::LogSuspended { .. }
                | ServerEvent::LogResumed
                | ServerEvent::SaveFailed { .. }
                | ServerEvent::MemoryLimitExceeded
                | ServerEvent::MemoryLimitKept
                | ServerEvent::Strangers(_) => {}
            }
            ControlFlow::Continue(())
        });
        let drained = || {
            // A shard that has ended has no use for it.
            let _ = inbox.send(ServerCommand::Drain);
        };
        let ended = runtime.block_on(options.drain.beside(driven, drained));
        storage.finish();
        ended.map_err(NodeError::io("the sockets failed"))?
    }
}
