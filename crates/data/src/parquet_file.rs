//! Files of Parquet, read by column without arrow: levels and values become [`Columns`].
//!
//! Flat columns and lists of one level are read, of every physical type that has a meaning for its role (see [`Role`]).

mod bytes;
mod footer;
mod leaf;

use std::sync::Arc;

use parquet::file::metadata::ParquetMetaData;

use self::bytes::GroupBytes;
use self::leaf::Leaf;
use crate::columns::Columns;
use crate::description::{Category, Description, Keys, Text};
use crate::error::{At, DataError, Fault};
use crate::hash::text_id;
use crate::store::OpenFile;

pub(crate) use footer::read as read_footer;
pub(crate) use leaf::{LeafType, leaf_types};

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

/// A file with its footer, and its columns in the order of the roles.
#[derive(Debug, Clone)]
pub(crate) struct ParquetFile {
    pub(crate) metadata: Arc<ParquetMetaData>,
    /// Columns of the roles: position in the file, and type.
    leaves: Vec<(usize, LeafType)>,
    /// The first row of each row group.
    first_rows: Vec<u64>,
}

impl ParquetFile {
    /// Finds the columns of the roles in a file.
    pub(crate) fn bind(
        metadata: Arc<ParquetMetaData>,
        roles: &[(String, Role)],
        at: &At,
    ) -> Result<Self, DataError> {
        let types = leaf_types(&metadata);
        let mut leaves = Vec::with_capacity(roles.len());
        for (name, role) in roles {
            let at = at.clone().column(name);
            let Some(leaf) = types.iter().position(|leaf| leaf.name == *name) else {
                let has: Vec<&str> = types.iter().map(|leaf| leaf.name.as_str()).collect();
                return Err(at.error(Fault::NoColumn { has: has.join(", ") }));
            };
            types[leaf].check(*role).map_err(|fault| at.error(fault))?;
            leaves.push((leaf, types[leaf].clone()));
        }
        let rows = metadata.row_groups().iter().scan(0, |first, group| {
            let rows = group.num_rows().cast_unsigned();
            Some(std::mem::replace(first, *first + rows))
        });
        let first_rows = rows.collect();
        Ok(Self { metadata, leaves, first_rows })
    }

    /// Nulls, if all row groups count them, and compressed bytes of the column of a role.
    pub(crate) fn column(&self, position: usize) -> (Option<u64>, Option<u64>) {
        let leaf = self.leaves[position].0;
        let groups = || self.metadata.row_groups().iter().map(|group| group.column(leaf));
        let nulls = groups().map(|column| column.statistics().and_then(|found| found.null_count_opt())).sum();
        (nulls, Some(groups().map(|column| column.byte_range().1).sum()))
    }

    /// Types of the columns of the roles.
    pub(crate) fn types(&self) -> impl Iterator<Item = &LeafType> {
        self.leaves.iter().map(|(_, kind)| kind)
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
        let bytes = GroupBytes::open(
            file,
            parquet.metadata.row_group(group),
            parquet.leaves.iter().map(|(leaf, _)| *leaf),
        )?;
        let mut leaves = Vec::with_capacity(roles.len());
        for ((name, role), (leaf, kind)) in roles.iter().zip(&parquet.leaves) {
            let at = file.info.at().row_group(group).column(name);
            let column = parquet.metadata.row_group(group).column(*leaf);
            let mut leaf = Leaf::open(&bytes, column, kind, at, parquet.first_rows[group])?;
            leaf.skip(size(skipped))?;
            leaves.push((*role, leaf));
        }
        Ok(Self { leaves, rows: size(rows) })
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
