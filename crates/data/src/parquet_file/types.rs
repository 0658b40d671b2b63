//! Types of columns, compared between the files of a set.

use std::collections::HashMap;

use super::{LeafType, ParquetFile, Role};
use crate::error::{DataError, Fault};
use crate::store::FileInfo;

/// Types of the columns that have roles, by name, each with the first file whose column has one.
#[derive(Debug, Clone, Default)]
pub(crate) struct FirstTypes(HashMap<String, (String, LeafType)>);

impl FirstTypes {
    /// Checks that values of a file mean what they do in the first one: an id would have two keys otherwise.
    pub(crate) fn compare(
        &mut self,
        info: &FileInfo,
        file: &ParquetFile,
        roles: &[(String, Role)],
    ) -> Result<(), DataError> {
        for (leaf, (column, role)) in file.types().zip(roles) {
            match self.0.get(column) {
                Some((first, expected)) if !leaf.is_like(expected, *role) => {
                    let (found, expected) = (leaf.text.clone(), expected.text.clone());
                    let fault = Fault::OtherType { found, expected, first: first.clone() };
                    return Err(info.at().column(column).error(fault));
                }
                Some((_, expected)) if !expected.is_null => {}
                _ => {
                    self.0.insert(column.clone(), (info.name.clone(), leaf.clone()));
                }
            }
        }
        Ok(())
    }
}
