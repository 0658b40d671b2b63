//! One column of a row group: its type, and its values as what they mean.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType, Int96};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::Role;
use super::bytes::GroupBytes;
use crate::columns::Ids;
use crate::description::Text;
use crate::error::{At, DataError, Fault, Row};
use crate::hash::{field_key, text_id};

/// Type of a column in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeafType {
    /// Name of the column: of a list that of the list, of a field of a struct with the structs in front.
    pub(crate) name: String,
    /// Words for people.
    pub(crate) text: String,
    pub(crate) physical: Physical,
    pub(crate) is_list: bool,
    /// A column of nothing but nulls, to which writers give any type.
    pub(crate) is_null: bool,
    max_def: i16,
    max_rep: i16,
    is_unsigned: bool,
    /// Annotations that change what the physical values mean, such as decimals.
    is_scaled: bool,
}

/// Types of all columns of a file.
pub(crate) fn leaf_types(metadata: &ParquetMetaData) -> Vec<LeafType> {
    let schema = metadata.file_metadata().schema_descr();
    let types = (0..schema.num_columns()).map(|index| {
        let column = schema.column(index);
        let parts = column.path().parts();
        let (max_def, max_rep) = (column.max_def_level(), column.max_rep_level());
        // The name of a list is that of the group around its repeated field.
        let mut depth = parts.len();
        let mut node = schema.root_schema();
        for (position, part) in parts.iter().enumerate() {
            let Some(child) = node.get_fields().iter().find(|field| field.name() == part) else { break };
            if child.get_basic_info().repetition() == Repetition::REPEATED {
                depth = depth.min(position.max(1));
            }
            if child.is_primitive() {
                break;
            }
            node = child;
        }
        let logical = column.logical_type_ref();
        use ConvertedType::{DECIMAL, UINT_8, UINT_16, UINT_32, UINT_64};
        let converted = column.converted_type();
        let is_unsigned = matches!(logical, Some(LogicalType::Integer(kind)) if !kind.is_signed)
            || matches!(converted, UINT_8 | UINT_16 | UINT_32 | UINT_64);
        let is_scaled = matches!(logical, Some(LogicalType::Decimal(_))) || converted == DECIMAL;
        let physical = column.physical_type();
        let annotation = match (is_scaled, is_unsigned) {
            (true, _) => " (decimal)",
            (_, true) => " (unsigned)",
            _ => "",
        };
        let list = match max_rep {
            0 => "",
            1 => "list of ",
            _ => "nested list of ",
        };
        LeafType {
            name: parts[..depth].join("."),
            text: match physical {
                Physical::BYTE_ARRAY if !is_scaled => format!("{list}text"),
                _ => format!("{list}{physical}{annotation}"),
            },
            physical,
            is_list: max_rep > 0,
            is_null: matches!(logical, Some(LogicalType::Unknown)),
            max_def,
            max_rep,
            is_unsigned,
            is_scaled,
        }
    });
    types.collect()
}

impl LeafType {
    /// Checks that values of this type can have a role.
    pub(crate) fn check(&self, role: Role) -> Result<(), Fault> {
        use Physical::{BOOLEAN, BYTE_ARRAY, DOUBLE, FLOAT, INT32, INT64, INT96};
        let (types, expected): (&[Physical], _) = match role {
            Role::Label => (&[BOOLEAN, INT32, INT64, FLOAT, DOUBLE], "a number or truth value, not a list"),
            Role::Weight | Role::Number(_) => {
                (&[BOOLEAN, INT32, INT64, FLOAT, DOUBLE], "a number, not a list")
            }
            Role::Time => (&[INT32, INT64, INT96], "a whole number or timestamp, not a list"),
            Role::Category { .. } => {
                (&[INT32, INT64, BYTE_ARRAY], "whole numbers or texts, or a list of them")
            }
        };
        let is_category = matches!(role, Role::Category { .. });
        let shape = if is_category { self.max_rep <= 1 } else { self.max_rep == 0 };
        if types.contains(&self.physical) && shape && !self.is_scaled {
            return Ok(());
        }
        Err(Fault::WrongType { found: self.text.clone(), expected })
    }

    /// True if a value of a role means the same in a column of another type: a whole number is an id by itself, a text is not, and
    /// times of 96 bits have a unit of their own.
    pub(crate) fn is_like(&self, other: &Self, role: Role) -> bool {
        let is_equal = |physical| (self.physical == physical) == (other.physical == physical);
        let is_same = match role {
            Role::Category { .. } => is_equal(Physical::BYTE_ARRAY),
            Role::Time => is_equal(Physical::INT96),
            Role::Label | Role::Weight | Role::Number(_) => true,
        };
        is_same || self.is_null || other.is_null
    }

    /// True if all values are whole numbers.
    pub(crate) fn is_integer(&self) -> bool {
        matches!(self.physical, Physical::INT32 | Physical::INT64 | Physical::BOOLEAN)
    }
}

/// Reads one column of a row group.
pub(super) struct Leaf {
    reader: ColumnReader,
    kind: LeafType,
    at: At,
    /// The next row of the file.
    row: u64,
    def: Vec<i16>,
    rep: Vec<i16>,
}

/// Applies a generic expression to a reader of each type.
macro_rules! each_type {
    ($reader:expr, $($variant:ident)|+, $found:ident => $then:expr) => {
        match $reader {
            $(ColumnReader::$variant($found) => $then,)+
            _ => unreachable!("the type was checked against the role"),
        }
    };
}

impl Leaf {
    pub(super) fn open(
        bytes: &GroupBytes,
        column: &ColumnChunkMetaData,
        kind: &LeafType,
        at: At,
        first_row: u64,
    ) -> Result<Self, DataError> {
        let bytes = Arc::new(bytes.column(column.byte_range()));
        // The number of rows is of use only with an index of pages.
        let pages = SerializedPageReader::new(bytes, column, 0, None).map_err(|error| failed(&at, error))?;
        let reader = get_column_reader(column.column_descr_ptr(), Box::new(pages));
        Ok(Self { reader, kind: kind.clone(), at, row: first_row, def: Vec::new(), rep: Vec::new() })
    }

    pub(super) fn skip(&mut self, rows: usize) -> Result<(), DataError> {
        let skipped = each_type!(
            &mut self.reader,
            BoolColumnReader | Int32ColumnReader | Int64ColumnReader | Int96ColumnReader | FloatColumnReader
                | DoubleColumnReader | ByteArrayColumnReader,
            reader => guarded(|| reader.skip_records(rows))
        );
        let skipped = skipped.map_err(|error| failed(&self.at, error))?;
        if skipped < rows {
            return Err(self.too_few());
        }
        self.row += rows as u64;
        Ok(())
    }

    pub(super) fn labels(&mut self, rows: usize, into: &mut Vec<f32>) -> Result<(), DataError> {
        self.floats(rows, into, |value| match value {
            Some(0.0) => Ok(0.0),
            Some(1.0) => Ok(1.0),
            Some(other) => Err(Fault::bad_value("a label, 0 or 1", other)),
            None => Err(Fault::bad_value("a label, 0 or 1", "null")),
        })
    }

    pub(super) fn weights(&mut self, rows: usize, into: &mut Vec<f32>) -> Result<(), DataError> {
        const WEIGHT: &str = "a weight, finite and not negative";
        self.floats(rows, into, |value| match value {
            #[expect(clippy::cast_possible_truncation, reason = "weights are multiplied with f32")]
            Some(weight) if weight.is_finite() && weight >= 0.0 => Ok(weight as f32),
            Some(other) => Err(Fault::bad_value(WEIGHT, other)),
            None => Err(Fault::bad_value(WEIGHT, "null")),
        })
    }

    pub(super) fn numbers(&mut self, rows: usize, into: &mut Vec<f64>) -> Result<(), DataError> {
        self.floats(rows, into, |value| match value {
            Some(number) if number.is_finite() => Ok(number),
            Some(other) => Err(Fault::bad_value("a finite number, or null", other)),
            None => Ok(f64::NAN),
        })
    }

    pub(super) fn times(&mut self, rows: usize, into: &mut Vec<i64>) -> Result<(), DataError> {
        let null = || Fault::bad_value("a time", "null");
        let Self { kind, def, .. } = self;
        let read = match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => scalars(reader, kind, def, rows, into, |value| {
                value.map(|&value| value.into()).ok_or_else(null)
            }),
            ColumnReader::Int64ColumnReader(reader) => {
                scalars(reader, kind, def, rows, into, |value| value.copied().ok_or_else(null))
            }
            // Timestamps of older versions of Spark and Hive.
            ColumnReader::Int96ColumnReader(reader) => {
                scalars(reader, kind, def, rows, into, |value| value.map(Int96::to_nanos).ok_or_else(null))
            }
            _ => unreachable!("the type was checked against the role"),
        };
        self.end(read, rows)
    }

    pub(super) fn ids(
        &mut self,
        rows: usize,
        text: Text,
        field: Option<u64>,
        into: &mut Ids,
    ) -> Result<(), DataError> {
        let key = |value| field.map_or(value, |field| field_key(field, value));
        let Self { kind, def, rep, .. } = self;
        let is_unsigned = kind.is_unsigned;
        let read = match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => lists(reader, kind, def, rep, rows, into, |&value| {
                let value = if is_unsigned { i64::from(value.cast_unsigned()) } else { i64::from(value) };
                Ok(key(not_negative(value)?))
            }),
            ColumnReader::Int64ColumnReader(reader) => lists(reader, kind, def, rep, rows, into, |&value| {
                Ok(key(if is_unsigned { value.cast_unsigned() } else { not_negative(value)? }))
            }),
            ColumnReader::ByteArrayColumnReader(reader) => {
                lists(reader, kind, def, rep, rows, into, |value: &ByteArray| {
                    Ok(key(id_of(value.data(), text)?))
                })
            }
            _ => unreachable!("the type was checked against the role"),
        };
        self.end(read, rows)
    }

    /// Reads a flat column of numbers of any type.
    fn floats<T>(
        &mut self,
        rows: usize,
        into: &mut Vec<T>,
        meaning: impl Fn(Option<f64>) -> Result<T, Fault>,
    ) -> Result<(), DataError> {
        let Self { kind, def, .. } = self;
        let is_unsigned = kind.is_unsigned;
        let read = match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => scalars(reader, kind, def, rows, into, |value| {
                meaning(value.map(|&value| f64::from(u8::from(value))))
            }),
            ColumnReader::Int32ColumnReader(reader) => scalars(reader, kind, def, rows, into, |value| {
                meaning(value.map(|&value| {
                    if is_unsigned { f64::from(value.cast_unsigned()) } else { f64::from(value) }
                }))
            }),
            ColumnReader::Int64ColumnReader(reader) => scalars(reader, kind, def, rows, into, |value| {
                meaning(
                    value.map(|&value| if is_unsigned { value.cast_unsigned() as f64 } else { value as f64 }),
                )
            }),
            ColumnReader::FloatColumnReader(reader) => {
                scalars(reader, kind, def, rows, into, |value| meaning(value.map(|&value| f64::from(value))))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                scalars(reader, kind, def, rows, into, |value| meaning(value.copied()))
            }
            _ => unreachable!("the type was checked against the role"),
        };
        self.end(read, rows)
    }

    /// Counts the rows that were read, or gives an error its place.
    fn end(&mut self, read: Result<usize, (usize, Failure)>, rows: usize) -> Result<(), DataError> {
        match read {
            Ok(read) if read == rows => {
                self.row += rows as u64;
                Ok(())
            }
            Ok(_) => Err(self.too_few()),
            Err((row, Failure::Value(fault))) => {
                Err(self.at.clone().row(Row::Number(self.row + row as u64)).error(fault))
            }
            Err((_, Failure::Parquet(error))) => {
                Err(failed(&self.at.clone().row(Row::Number(self.row)), error))
            }
        }
    }

    fn too_few(&self) -> DataError {
        let reason = "the column has fewer values than the row group has rows".to_owned();
        self.at.clone().row(Row::Number(self.row)).error(Fault::Corrupt { reason })
    }
}

enum Failure {
    Value(Fault),
    Parquet(ParquetError),
}

/// Appends what each value of a flat column means.
fn scalars<T: DataType, U>(
    reader: &mut ColumnReaderImpl<T>,
    kind: &LeafType,
    def: &mut Vec<i16>,
    rows: usize,
    into: &mut Vec<U>,
    meaning: impl Fn(Option<&T::T>) -> Result<U, Fault>,
) -> Result<usize, (usize, Failure)> {
    into.reserve(rows);
    flat(reader, kind, def, rows, |value| {
        into.push(meaning(value)?);
        Ok(())
    })
}

/// Reads rows of a flat column; an error has the row in front of it.
fn flat<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    kind: &LeafType,
    def: &mut Vec<i16>,
    rows: usize,
    mut each: impl FnMut(Option<&T::T>) -> Result<(), Fault>,
) -> Result<usize, (usize, Failure)> {
    def.clear();
    let mut values: Vec<T::T> = Vec::with_capacity(rows);
    let read = guarded(|| reader.read_records(rows, Some(def), None, &mut values));
    let (records, ..) = read.map_err(|error| (0, Failure::Parquet(error)))?;
    let at = |row| move |fault| (row, Failure::Value(fault));
    if kind.max_def == 0 || values.len() == def.len() {
        for (row, value) in values.iter().enumerate() {
            each(Some(value)).map_err(at(row))?;
        }
    } else {
        let mut values = values.iter();
        for (row, &level) in def.iter().enumerate() {
            let value = if level == kind.max_def { values.next() } else { None };
            each(value).map_err(at(row))?;
        }
    }
    Ok(records)
}

/// Reads rows of ids, flat or in lists. A null, in a list or instead of one, is no id.
fn lists<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    kind: &LeafType,
    def: &mut Vec<i16>,
    rep: &mut Vec<i16>,
    rows: usize,
    into: &mut Ids,
    id: impl Fn(&T::T) -> Result<u64, Fault>,
) -> Result<usize, (usize, Failure)> {
    into.ids.reserve(rows);
    into.offsets.reserve(rows);
    if !kind.is_list {
        return flat(reader, kind, def, rows, |value| {
            if let Some(value) = value {
                into.ids.push(id(value)?);
            }
            into.end_row();
            Ok(())
        });
    }
    def.clear();
    rep.clear();
    let mut values: Vec<T::T> = Vec::with_capacity(rows);
    let read = guarded(|| reader.read_records(rows, Some(def), Some(rep), &mut values));
    let (records, ..) = read.map_err(|error| (0, Failure::Parquet(error)))?;
    let mut values = values.iter();
    let mut started = 0;
    for (&def, &rep) in def.iter().zip(rep.iter()) {
        if rep == 0 {
            if started > 0 {
                into.end_row();
            }
            started += 1;
        }
        if def == kind.max_def {
            let Some(value) = values.next() else { break };
            into.ids.push(id(value).map_err(|fault| (started - 1, Failure::Value(fault)))?);
        }
    }
    if started > 0 {
        into.end_row();
    }
    Ok(records.min(started))
}

fn not_negative(value: i64) -> Result<u64, Fault> {
    u64::try_from(value).map_err(|_| Fault::bad_value("an id, not negative", value))
}

/// The id of a text.
pub(crate) fn id_of(text: &[u8], meaning: Text) -> Result<u64, Fault> {
    match meaning {
        Text::Any => Ok(text_id(text)),
        Text::Hex => crate::text_file::hexadecimal(text),
    }
}

/// Decodes, and takes a panic for an error: of some damaged pages the decoder makes nothing else. A column that has failed is not read again.
fn guarded<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let reason = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(ParquetError::General(reason.unwrap_or("the decoder failed").to_owned()))
    })
}

fn failed(at: &At, error: ParquetError) -> DataError {
    match error {
        ParquetError::External(source) => match source.downcast::<DataError>() {
            Ok(error) => *error,
            Err(other) => at.clone().error(Fault::Corrupt { reason: other.to_string() }),
        },
        other => at.clone().error(Fault::Corrupt { reason: other.to_string() }),
    }
}
