//! A data set: files of a place, their chunks, and readers of chunks.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use libra_objects::Environment;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::description::{Category, Description, FILE_NAME, Keys, Text};
use crate::error::{At, DataError, Fault};
use crate::hash::{splitmix64, text_id};
use crate::parquet_file::{
    FirstTypes, GroupReader, LeafType, ParquetFile, Role, leaf_types, read_footer, roles,
};
use crate::place::{Format, Packing, Place};
use crate::store::{FileInfo, Store};
use crate::text_file::{Run, TextColumns, TextReader, open_index};

/// Settings for the opening of a data set.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Roles of the columns, instead of those of a `dataset.toml` beside the data.
    pub description: Option<Description>,
    /// Meaning of ids, instead of that of the description.
    pub keys: Option<Keys>,
    /// Directory of indexes of texts. Without it they are beside a local text, and otherwise in the user's cache.
    pub index_directory: Option<PathBuf>,
    /// Settings of object stores, instead of the environment of this process.
    pub environment: Option<Environment>,
    /// Attempts after the first of a request to a server, instead of 8, which take 25 s.
    pub retries: Option<u32>,
}

impl Options {
    pub(crate) fn store(&self, place: &Place) -> Result<Arc<Store>, DataError> {
        let environment = self.environment.clone().unwrap_or_else(Environment::of_process);
        Store::open(place, &environment, self.retries).map(Arc::new)
    }
}

/// Columns of a data set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Schema {
    /// The roles.
    pub description: Description,
    /// Kind of each numeric column.
    pub numbers: Vec<ColumnKind>,
    /// Kind of each category.
    pub categories: Vec<ColumnKind>,
}

/// Kind of values of a column. If files differ, the greater one is that of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnKind {
    /// Whole numbers.
    Integer,
    /// Numbers with fractions.
    Float,
    /// One id a row, or none.
    Id,
    /// Any number of ids a row.
    List,
}

impl Schema {
    /// The columns of Criteo's logs.
    pub fn criteo() -> Self {
        let description = Description::criteo();
        let numbers = vec![ColumnKind::Integer; description.numbers.len()];
        let categories = vec![ColumnKind::Id; description.categories.len()];
        Self { description, numbers, categories }
    }

    /// Columns without rows.
    pub fn columns(&self) -> Columns {
        Columns::new(self.numbers.len(), self.categories.len())
    }
}

/// A column, without its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnSummary {
    /// Its name.
    pub name: String,
    /// Its role: `label`, `weight`, `time`, `number` or `category`.
    pub role: &'static str,
    /// Kind of its values, of numbers and categories.
    pub kind: Option<ColumnKind>,
    /// Missing values, if the files count them.
    pub nulls: Option<u64>,
    /// Compressed bytes, if the files have them by column.
    pub bytes: Option<u64>,
}

/// Roles for a Parquet file without description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// All columns: names, and types in words.
    pub columns: Vec<(String, String)>,
    /// Roles that they could have, if one of them has a usual name of labels.
    pub description: Option<Description>,
}

/// Rows that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Chunk {
    /// Number of the file.
    pub file: u32,
    /// Number of the row group, or of the run of lines.
    pub group: u32,
    /// Rows of the group in front of those of the chunk.
    pub skip: u64,
    /// Rows.
    pub rows: u64,
}

/// Counts of reads since the set was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests to a server.
    pub requests: u64,
    /// Those that were sent again.
    pub retries: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Row groups, or runs of lines, that were opened: each as often as it was.
    pub groups: u64,
}

/// Parts of a data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Split {
    /// So much of the rows, from the end, is tested on: above 0, below 1.
    Tail(f64),
    /// As MLPerf splits the terabyte of Criteo: the last file is not trained on, and its first half is tested on.
    LastFile,
}

/// An open data set.
#[derive(Debug, Clone)]
pub struct DataSet {
    store: Arc<Store>,
    schema: Schema,
    roles: Vec<(String, Role)>,
    text: Option<TextColumns>,
    files: Arc<[(FileInfo, Content)]>,
    chunks: Arc<[Chunk]>,
}

/// Layout of a file.
#[derive(Debug, Clone)]
enum Content {
    Parquet(ParquetFile),
    Text(Packing, Vec<Run>),
}

impl DataSet {
    /// Opens the data set at a place: a path, a directory, a pattern, or a URL (`file`, `s3`, `gs`, `az`, `http`, `https`).
    ///
    /// # Errors
    /// The place, the description or a file is not as it must be.
    pub fn open(place: &str, options: &Options) -> Result<Self, DataError> {
        Self::open_with_progress(place, options, &mut |_| {})
    }

    /// The same; `progress` gets the bytes of the files that have been looked at.
    ///
    /// # Errors
    /// Those of [`DataSet::open`].
    pub fn open_with_progress(
        place: &str,
        options: &Options,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, DataError> {
        Self::open_at(&Place::parse(place)?, options, progress)
    }

    pub(crate) fn open_at(
        place: &Place,
        options: &Options,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, DataError> {
        let store = options.store(place)?;
        let listed = store.list(place)?;
        let described = match &options.description {
            // The caller knows its name.
            Some(description) => Some((FILE_NAME.to_owned(), description.clone())),
            None => described(&store, place)?,
        };
        let opener = Opener { store, described, options };
        if listed[0].1 == Format::Parquet {
            opener.parquet(listed, progress)
        } else {
            opener.text(listed, progress)
        }
    }

    /// Returns the columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the files, in order.
    pub fn files(&self) -> impl Iterator<Item = &FileInfo> {
        self.files.iter().map(|(info, _)| info)
    }

    /// Returns all chunks, in the order of the rows.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.rows).sum()
    }

    /// Returns the same set with counts of its own: those of one reader among several.
    #[must_use]
    pub fn counted_apart(&self) -> Self {
        Self { store: Arc::new(self.store.counted_apart()), ..self.clone() }
    }

    /// Returns what was read so far.
    pub fn counts(&self) -> Counts {
        self.store.counts()
    }

    /// Returns a number that differs when files, rows or roles differ: members of a job compare it.
    pub fn fingerprint(&self) -> u64 {
        let mut sum = text_id(self.schema.description.to_toml().as_bytes());
        let mut add = |bits: u64| sum = splitmix64(sum ^ bits);
        for (info, _) in &*self.files {
            // The last part of the name: machines may have the set in different directories, and copies have other times.
            add(text_id(info.name.rsplit('/').next().unwrap_or_default().as_bytes()));
            add(info.bytes);
            add(if info.version.contains('"') { text_id(info.version.as_bytes()) } else { 0 });
        }
        for chunk in &*self.chunks {
            add(u64::from(chunk.file) << 32 | u64::from(chunk.group));
            add(chunk.rows);
        }
        sum
    }

    /// Checks that values of its files mean what they do in those that were compared before.
    pub(crate) fn compare_types(&self, types: &mut FirstTypes) -> Result<(), DataError> {
        self.files.iter().try_for_each(|(info, content)| match content {
            Content::Parquet(file) => types.compare(info, file, &self.roles),
            Content::Text(..) => Ok(()),
        })
    }

    /// Splits the chunks into those that are trained and those that are tested on.
    pub fn split(&self, split: Split) -> (Vec<Chunk>, Vec<Chunk>) {
        match split {
            Split::Tail(share) => {
                let rows = self.rows();
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
                let tested =
                    ((rows as f64 * share).round() as u64).clamp(1.min(rows), rows.saturating_sub(1).max(1));
                cut(&self.chunks, rows.saturating_sub(tested))
            }
            Split::LastFile => {
                let last = self.files.len().saturating_sub(1);
                let (train, last): (Vec<Chunk>, Vec<Chunk>) =
                    self.chunks.iter().partition(|chunk| (chunk.file as usize) < last);
                let rows: u64 = last.iter().map(|chunk| chunk.rows).sum();
                (train, cut(&last, rows.div_ceil(2)).0)
            }
        }
    }

    /// Opens a chunk of this set.
    ///
    /// # Errors
    /// The file has changed, or cannot be read.
    pub fn read(&self, chunk: &Chunk) -> Result<ChunkReader, DataError> {
        let (info, content) = &self.files[chunk.file as usize];
        let file = self.store.file(info)?;
        let (group, skip, rows) = (chunk.group as usize, chunk.skip, chunk.rows);
        let (reader, rows_of_group) = match content {
            Content::Parquet(parquet) => {
                let reader = GroupReader::open(&file, parquet, &self.roles, group, skip, rows)?;
                (Reader::Parquet(reader), parquet.rows(group))
            }
            Content::Text(packing, runs) => {
                let columns = self.text.as_ref().expect("a text has columns of text");
                let reader = TextReader::open(&file, *packing, columns, runs[group], skip, rows)?;
                (Reader::Text(reader), runs[group].rows)
            }
        };
        self.store.count_open();
        Ok(ChunkReader { reader, left: *chunk, end: rows_of_group })
    }

    /// Returns the columns that have a role, with what is known of them without reading rows.
    pub fn columns(&self) -> Vec<ColumnSummary> {
        let roles = roles(&self.schema.description);
        let summary = |(position, (name, role)): (usize, (String, Role))| {
            let (role, kind) = match role {
                Role::Label => ("label", None),
                Role::Weight => ("weight", None),
                Role::Time => ("time", None),
                Role::Number(index) => ("number", Some(self.schema.numbers[index])),
                Role::Category { index, .. } => ("category", Some(self.schema.categories[index])),
            };
            let mut summary = ColumnSummary { name, role, kind, nulls: Some(0), bytes: Some(0) };
            for (_, content) in &*self.files {
                let found = match content {
                    Content::Parquet(file) => file.column(position),
                    Content::Text(..) => (None, None),
                };
                summary.nulls = summary.nulls.zip(found.0).map(|(sum, nulls)| sum + nulls);
                summary.bytes = summary.bytes.zip(found.1).map(|(sum, bytes)| sum + bytes);
            }
            summary
        };
        roles.into_iter().enumerate().map(summary).collect()
    }

    /// Returns names and types of all columns of the first file, which is Parquet, and roles that they could have.
    ///
    /// # Errors
    /// The place or its first file cannot be read.
    pub fn propose(place: &str, options: &Options) -> Result<Proposal, DataError> {
        let place = Place::parse(place)?;
        let store = options.store(&place)?;
        let listed = store.list(&place)?;
        let types = leaf_types(&read_footer(&*store.file(&listed[0].0)?)?);
        let columns = types.iter().map(|leaf| (leaf.name.clone(), leaf.text.clone())).collect();
        Ok(Proposal { columns, description: propose(&types) })
    }
}

/// Roles that follow from names and types: label, weight and time by their names, numbers from fractions, categories from all
/// others.
fn propose(types: &[LeafType]) -> Option<Description> {
    const LABELS: [&str; 6] = ["label", "click", "clicked", "target", "is_click", "y"];
    let fits = |leaf: &&LeafType, role| leaf.check(role).is_ok();
    let named = |names: &[&str], fits: &dyn Fn(&LeafType) -> bool| {
        names.iter().find_map(|name| types.iter().find(|leaf| leaf.name == *name && fits(leaf)))
    };
    let label = named(&LABELS, &|_| true)?;
    let weight = named(&["weight", "w"], &|leaf| !leaf.is_integer() && fits(&leaf, Role::Weight));
    let time = named(&["time", "ts", "timestamp"], &|leaf| fits(&leaf, Role::Time));
    let is_taken = |leaf: &LeafType| [Some(label), weight, time].contains(&Some(leaf));
    let others = || types.iter().filter(|leaf| !is_taken(leaf));
    let numbers = others().filter(|leaf| !leaf.is_integer() && fits(leaf, Role::Number(0)));
    let category = Role::Category { index: 0, text: Text::Any, field: None };
    let categories = others().filter(|leaf| fits(leaf, category));
    Some(Description {
        keys: Keys::Values,
        label: label.name.clone(),
        weight: weight.map(|leaf| leaf.name.clone()),
        time: time.map(|leaf| leaf.name.clone()),
        numbers: numbers.map(|leaf| leaf.name.clone()).collect(),
        categories: categories.map(|leaf| Category { name: leaf.name.clone(), text: Text::Any }).collect(),
    })
}

/// The description beside the data, and its name for messages.
pub(crate) fn described(store: &Store, place: &Place) -> Result<Option<(String, Description)>, DataError> {
    let Some((name, text)) = store.read_beside(place, FILE_NAME)? else { return Ok(None) };
    match Description::parse(&String::from_utf8_lossy(&text)) {
        Ok(description) => Ok(Some((name, description))),
        Err(fault) => Err(At::file(name).error(fault)),
    }
}

/// The first `rows` rows of chunks, and the others.
fn cut(chunks: &[Chunk], mut rows: u64) -> (Vec<Chunk>, Vec<Chunk>) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let taken = rows.min(chunk.rows);
        rows -= taken;
        if taken > 0 {
            first.push(Chunk { rows: taken, ..*chunk });
        }
        if taken < chunk.rows {
            second.push(Chunk { skip: chunk.skip + taken, rows: chunk.rows - taken, ..*chunk });
        }
    }
    (first, second)
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a set has fewer than 2^32 files, and a file as many groups")
}

/// Opens the files of a set.
struct Opener<'a> {
    store: Arc<Store>,
    described: Option<(String, Description)>,
    options: &'a Options,
}

impl Opener<'_> {
    fn description(&self, otherwise: impl FnOnce() -> Option<Description>) -> Option<Description> {
        let described = self.described.as_ref().map(|(_, description)| description.clone());
        let mut description = described.or_else(otherwise)?;
        description.keys = self.options.keys.unwrap_or(description.keys);
        Some(description)
    }

    fn parquet(
        self,
        listed: Vec<(FileInfo, Format)>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<DataSet, DataError> {
        let first = read_footer(&*self.store.file(&listed[0].0)?)?;
        let first_types = leaf_types(&first);
        let description = self.description(|| criteo_of(&first_types));
        let description = description.ok_or_else(|| listed[0].0.at().error(Fault::NoDescription))?;
        let roles = roles(&description);
        let (mut files, mut chunks, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
        let mut types = FirstTypes::default();
        let (mut first, mut done) = (Some(first), 0);
        for (info, _) in listed {
            let metadata = match first.take() {
                Some(metadata) => metadata,
                None => read_footer(&*self.store.file(&info)?)?,
            };
            let file = ParquetFile::bind(&metadata, &roles, &info.at())?;
            types.compare(&info, &file, &roles)?;
            let found = file.types().zip(&roles).map(|(leaf, (_, role))| kind(leaf, *role));
            if kinds.is_empty() {
                kinds.extend(found);
            } else {
                kinds.iter_mut().zip(found).for_each(|(kind, found)| *kind = found.max(*kind));
            }
            chunks.extend(file.groups().enumerate().filter(|(_, rows)| *rows > 0).map(|(group, rows)| {
                Chunk { file: number(files.len()), group: number(group), skip: 0, rows }
            }));
            done += info.bytes;
            progress(done);
            files.push((info, Content::Parquet(file)));
        }
        if chunks.is_empty() {
            return Err(files[0].0.at().error(Fault::Empty));
        }
        let categories = kinds.split_off(kinds.len() - description.categories.len());
        let numbers = kinds.split_off(kinds.len() - description.numbers.len());
        let schema = Schema { description, numbers, categories };
        Ok(DataSet {
            store: self.store,
            schema,
            roles,
            text: None,
            files: files.into(),
            chunks: chunks.into(),
        })
    }

    fn text(
        self,
        listed: Vec<(FileInfo, Format)>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<DataSet, DataError> {
        let description = self.description(|| Some(Description::criteo())).expect("text has one");
        let name = self.described.as_ref().map_or(FILE_NAME, |(name, _)| name);
        let bad = |fault| At::file(name).error(fault);
        let columns = TextColumns::new(&description).map_err(bad)?;
        let (mut files, mut chunks) = (Vec::new(), Vec::new());
        let mut done = 0;
        for (info, format) in listed {
            let Format::Text(packing) = format else { unreachable!("a set has one kind of files") };
            let file = self.store.file(&info)?;
            let cache = self.options.index_directory.as_deref();
            let index = open_index(&file, packing, cache, &mut |bytes| progress(done + bytes))?;
            chunks.extend(index.runs.iter().enumerate().map(|(group, run)| Chunk {
                file: number(files.len()),
                group: number(group),
                skip: 0,
                rows: run.rows,
            }));
            done += info.bytes;
            files.push((info, Content::Text(packing, index.runs)));
        }
        let schema = Schema { description, ..Schema::criteo() };
        let text = Some(columns);
        let (files, chunks) = (files.into(), chunks.into());
        Ok(DataSet { store: self.store, schema, roles: Vec::new(), text, files, chunks })
    }
}

fn kind(leaf: &LeafType, role: Role) -> ColumnKind {
    match role {
        Role::Category { .. } if leaf.is_list => ColumnKind::List,
        Role::Category { .. } => ColumnKind::Id,
        _ if leaf.is_integer() => ColumnKind::Integer,
        _ => ColumnKind::Float,
    }
}

/// Files with the names of Criteo's columns need no description.
fn criteo_of(types: &[LeafType]) -> Option<Description> {
    let criteo = Description::criteo();
    let has = |name: &str| types.iter().any(|leaf| leaf.name == name);
    let is_criteo = criteo.names().all(has);
    is_criteo.then_some(criteo)
}

/// Reads the rows of a chunk, in the order of the file.
pub struct ChunkReader {
    reader: Reader,
    /// Rows of the chunk that were not read.
    left: Chunk,
    /// Rows of the group.
    end: u64,
}

enum Reader {
    Parquet(GroupReader),
    Text(TextReader),
}

impl std::fmt::Debug for ChunkReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ChunkReader").finish_non_exhaustive()
    }
}

impl ChunkReader {
    /// Appends up to `rows` rows to columns of this set; returns their number, 0 at the end of the chunk.
    ///
    /// # Errors
    /// The file cannot be read, or has a bad value. `into` may then have parts of a row, and should be cleared.
    pub fn read(&mut self, rows: usize, into: &mut Columns) -> Result<usize, DataError> {
        let read = match &mut self.reader {
            Reader::Parquet(reader) => reader.read(rows, into),
            Reader::Text(reader) => reader.read(rows, into),
        }?;
        self.left.skip += read as u64;
        self.left.rows -= read as u64;
        Ok(read)
    }
}

/// Readers of chunks that have ended, at most 16 of them: a chunk that begins where one of them is goes on with it, so that no part of a
/// group is read twice.
#[derive(Debug, Default)]
pub struct Readers(VecDeque<ChunkReader>);

impl Readers {
    const KEPT_MAX: usize = 16;

    /// Opens a chunk of a set, which must be the one of all chunks.
    ///
    /// # Errors
    /// Those of [`DataSet::read`].
    pub fn open(&mut self, set: &DataSet, chunk: &Chunk) -> Result<ChunkReader, DataError> {
        let is_there = |reader: &ChunkReader| Chunk { rows: chunk.rows, ..reader.left } == *chunk;
        let Some(mut reader) = self.0.iter().position(is_there).and_then(|place| self.0.remove(place)) else {
            return set.read(chunk);
        };
        reader.left.rows = chunk.rows;
        match &mut reader.reader {
            Reader::Parquet(reader) => reader.go_on(chunk.rows),
            Reader::Text(reader) => reader.go_on(chunk.rows),
        }
        Ok(reader)
    }

    /// Keeps a reader that has read its chunk, unless its group ends there. The oldest one goes if they are too many.
    pub fn keep(&mut self, reader: ChunkReader) {
        if reader.left.rows == 0 && reader.left.skip < reader.end {
            if self.0.len() == Self::KEPT_MAX {
                self.0.pop_front();
            }
            self.0.push_back(reader);
        }
    }
}
