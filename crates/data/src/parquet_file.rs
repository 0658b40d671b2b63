//! Files of Parquet, read by column without arrow: levels and values become [`Columns`].
//!
//! Flat columns and lists of one level are read, of every physical type that has a meaning for its role (see [`Role`]).

mod bytes;
mod footer;
mod leaf;
mod types;

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::schema::types::ColumnDescPtr;

use self::bytes::GroupBytes;
use self::leaf::Leaf;
use crate::columns::Columns;
use crate::description::{Category, Description, Keys, Text};
use crate::error::{At, DataError, Fault};
use crate::hash::text_id;
use crate::store::OpenFile;

pub(crate) use footer::read as read_footer;
pub(crate) use leaf::{LeafType, leaf_types};
pub(crate) use types::FirstTypes;

/// Role of a column in a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Label,
    Weight,
    Time,
    Number(usize),
    Category {
        index: usize,
        text: Text,
        /// Hash of the name, if ids are hashed.
        field: Option<u64>,
    },
}

/// The roles of the columns that a description names, in its order.
pub(crate) fn roles(description: &Description) -> Vec<(String, Role)> {
    let mut roles = vec![(description.label.clone(), Role::Label)];
    roles.extend(description.weight.iter().map(|name| (name.clone(), Role::Weight)));
    roles.extend(description.time.iter().map(|name| (name.clone(), Role::Time)));
    roles.extend(
        description.numbers.iter().cloned().enumerate().map(|(index, name)| (name, Role::Number(index))),
    );
    roles.extend(description.categories.iter().enumerate().map(|(index, Category { name, text })| {
        let field = (description.keys == Keys::Hashed).then(|| text_id(name.as_bytes()));
        (name.clone(), Role::Category { index, text: *text, field })
    }));
    roles
}

/// A file: of its footer, so much as its columns that have roles need. All of it would be 30 MB for 100 million rows of Criteo's log.
#[derive(Debug, Clone)]
pub(crate) struct ParquetFile {
    /// Columns in the order of the roles.
    leaves: Vec<FileColumn>,
    /// Rows up to the end of each row group.
    ends: Vec<u64>,
    /// Columns of all row groups, one group after the other.
    columns: Vec<GroupColumn>,
}

/// A column of a file.
#[derive(Debug, Clone)]
struct FileColumn {
    kind: LeafType,
    descriptor: ColumnDescPtr,
    /// Nulls, if all row groups count them.
    nulls: Option<u64>,
    /// Compressed bytes.
    bytes: u64,
}

/// A column of a row group.
#[derive(Debug, Clone, Copy)]
struct GroupColumn {
    dictionary: Option<i64>,
    data: i64,
    bytes: i64,
    values: i64,
    compression: Compression,
}

impl ParquetFile {
    /// Finds the columns of the roles in a file.
    pub(crate) fn bind(
        metadata: &ParquetMetaData,
        roles: &[(String, Role)],
        at: &At,
    ) -> Result<Self, DataError> {
        let types = leaf_types(metadata);
        let mut places = Vec::with_capacity(roles.len());
        for (name, role) in roles {
            let at = at.clone().column(name);
            let Some(leaf) = types.iter().position(|leaf| leaf.name == *name) else {
                let has: Vec<&str> = types.iter().map(|leaf| leaf.name.as_str()).collect();
                return Err(at.error(Fault::NoColumn { has: has.join(", ") }));
            };
            types[leaf].check(*role).map_err(|fault| at.error(fault))?;
            places.push(leaf);
        }
        let groups = metadata.row_groups();
        for (number, group) in groups.iter().enumerate() {
            for (&leaf, (name, _)) in places.iter().zip(roles) {
                let codec = match group.column(leaf).compression() {
                    Compression::BROTLI(_) => "brotli",
                    Compression::LZO => "LZO",
                    _ => continue,
                };
                return Err(at.clone().row_group(number).column(name).error(Fault::Codec { codec }));
            }
        }
        let ends = groups.iter().scan(0, |end, group| {
            *end += group.num_rows().cast_unsigned();
            Some(*end)
        });
        let columns =
            groups.iter().flat_map(|group| places.iter().map(|leaf| GroupColumn::of(group.column(*leaf))));
        let leaves = places.iter().map(|&leaf| {
            let of_groups = || groups.iter().map(|group| group.column(leaf));
            let nulls = of_groups().map(|it| it.statistics().and_then(|found| found.null_count_opt())).sum();
            let bytes = of_groups().map(|column| column.byte_range().1).sum();
            let descriptor = metadata.file_metadata().schema_descr().column(leaf);
            FileColumn { kind: types[leaf].clone(), descriptor, nulls, bytes }
        });
        Ok(Self { leaves: leaves.collect(), ends: ends.collect(), columns: columns.collect() })
    }

    /// Rows of each row group.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u64> {
        (0..self.ends.len()).map(|group| self.rows(group))
    }

    /// Rows of a row group.
    pub(crate) fn rows(&self, group: usize) -> u64 {
        self.ends[group] - self.first_row(group)
    }

    fn first_row(&self, group: usize) -> u64 {
        group.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The columns of a row group, as far as readers need them.
    fn columns(&self, group: usize) -> Result<Vec<ColumnChunkMetaData>, ParquetError> {
        let width = self.leaves.len();
        let columns = self.columns[group * width..].iter().zip(&self.leaves);
        let column = |(column, leaf): (&GroupColumn, &FileColumn)| {
            ColumnChunkMetaData::builder(leaf.descriptor.clone())
                .set_dictionary_page_offset(column.dictionary)
                .set_data_page_offset(column.data)
                .set_total_compressed_size(column.bytes)
                .set_num_values(column.values)
                .set_compression(column.compression)
                .build()
        };
        columns.map(column).collect()
    }

    /// Nulls, if all row groups count them, and compressed bytes of the column of a role.
    pub(crate) fn column(&self, position: usize) -> (Option<u64>, Option<u64>) {
        let FileColumn { nulls, bytes, .. } = self.leaves[position];
        (nulls, Some(bytes))
    }

    /// Types of the columns of the roles.
    pub(crate) fn types(&self) -> impl Iterator<Item = &LeafType> {
        self.leaves.iter().map(|leaf| &leaf.kind)
    }
}

impl GroupColumn {
    fn of(column: &ColumnChunkMetaData) -> Self {
        Self {
            dictionary: column.dictionary_page_offset(),
            data: column.data_page_offset(),
            bytes: column.compressed_size(),
            values: column.num_values(),
            compression: column.compression(),
        }
    }
}

/// Reads rows of a row group.
pub(crate) struct GroupReader {
    leaves: Vec<(Role, Leaf)>,
    rows: usize,
}

impl GroupReader {
    /// Opens `rows` rows of a group behind `skipped` ones.
    pub(crate) fn open(
        file: &Arc<OpenFile>,
        parquet: &ParquetFile,
        roles: &[(String, Role)],
        group: usize,
        skipped: u64,
        rows: u64,
    ) -> Result<Self, DataError> {
        let at = || file.info.at().row_group(group);
        let corrupt = |error: ParquetError| at().error(Fault::Corrupt { reason: error.to_string() });
        let columns = parquet.columns(group).map_err(corrupt)?;
        let bytes = GroupBytes::open(file, &columns)?;
        let mut leaves = Vec::with_capacity(roles.len());
        for (((name, role), leaf), column) in roles.iter().zip(&parquet.leaves).zip(&columns) {
            let mut leaf =
                Leaf::open(&bytes, column, &leaf.kind, at().column(name), parquet.first_row(group))?;
            leaf.skip(size(skipped))?;
            leaves.push((*role, leaf));
        }
        Ok(Self { leaves, rows: size(rows) })
    }

    /// Goes on with the next `rows` rows of the group.
    pub(crate) fn go_on(&mut self, rows: u64) {
        self.rows = size(rows);
    }

    /// Appends up to `rows` rows; returns their number, 0 at the end.
    pub(crate) fn read(&mut self, rows: usize, into: &mut Columns) -> Result<usize, DataError> {
        let rows = rows.min(self.rows);
        for (role, leaf) in &mut self.leaves {
            match *role {
                Role::Label => leaf.labels(rows, &mut into.labels)?,
                Role::Weight => leaf.weights(rows, &mut into.weights)?,
                Role::Time => leaf.times(rows, &mut into.times)?,
                Role::Number(index) => leaf.numbers(rows, &mut into.numbers[index])?,
                Role::Category { index, text, field } => {
                    leaf.ids(rows, text, field, &mut into.categories[index])?;
                }
            }
        }
        self.rows -= rows;
        Ok(rows)
    }
}

fn size(rows: u64) -> usize {
    usize::try_from(rows).expect("rows of a group fit into memory")
}
