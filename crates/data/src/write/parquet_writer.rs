//! Files of Parquet: one row group at a time is in memory.

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::FileWriter;
use crate::columns::{Columns, Ids};
use crate::dataset::{ColumnKind, Schema};
use crate::error::{At, DataError, Fault};

pub(super) struct ParquetWriter {
    at: At,
    file: SerializedFileWriter<BufWriter<File>>,
    schema: Schema,
    /// Rows of the next group.
    waiting: Columns,
    group_rows: usize,
}

impl ParquetWriter {
    pub(super) fn new(
        file: BufWriter<File>,
        schema: &Schema,
        group_rows: usize,
        at: At,
    ) -> std::result::Result<Self, DataError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level of zstd")))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let types = types(schema).map_err(|error| failed(&at, error))?;
        let file = SerializedFileWriter::new(file, types, Arc::new(properties));
        let file = file.map_err(|error| failed(&at, error))?;
        Ok(Self {
            at,
            file,
            schema: schema.clone(),
            waiting: schema.columns(),
            group_rows: group_rows.max(1),
        })
    }

    fn end_group(&mut self) -> Result<()> {
        let Self { file, schema, waiting, .. } = self;
        let mut group = file.next_row_group()?;
        let labels: Vec<i32> = waiting.labels.iter().map(|&label| i32::from(label != 0.0)).collect();
        column::<Int32Type>(&mut group, &labels, None, None)?;
        if schema.description.weight.is_some() {
            column::<FloatType>(&mut group, &waiting.weights, None, None)?;
        }
        if schema.description.time.is_some() {
            column::<Int64Type>(&mut group, &waiting.times, None, None)?;
        }
        for (kind, values) in schema.numbers.iter().zip(&waiting.numbers) {
            let levels: Vec<i16> = values.iter().map(|value| i16::from(!value.is_nan())).collect();
            let there = values.iter().filter(|value| !value.is_nan());
            #[expect(clippy::cast_possible_truncation, reason = "they were whole numbers of 64 bits")]
            if *kind == ColumnKind::Integer {
                column::<Int64Type>(
                    &mut group,
                    &there.map(|&value| value as i64).collect::<Vec<_>>(),
                    Some(&levels),
                    None,
                )?;
            } else {
                column::<DoubleType>(&mut group, &there.copied().collect::<Vec<_>>(), Some(&levels), None)?;
            }
        }
        for (kind, ids) in schema.categories.iter().zip(&waiting.categories) {
            let values: Vec<i64> = ids.ids.iter().map(|id| id.cast_signed()).collect();
            let (def, rep) = levels(ids);
            let rep = (*kind == ColumnKind::List).then_some(&rep[..]);
            column::<Int64Type>(&mut group, &values, Some(&def), rep)?;
        }
        group.close()?;
        waiting.clear();
        Ok(())
    }
}

impl FileWriter for ParquetWriter {
    fn write(&mut self, columns: &Columns, rows: Range<usize>) -> std::result::Result<(), DataError> {
        let row = |row: usize| u32::try_from(row).expect("a batch has fewer than 2^32 rows");
        let mut from = rows.start;
        while from < rows.end {
            let end = rows.end.min(from + self.group_rows - self.waiting.rows());
            let picked: Vec<u32> = (row(from)..row(end)).collect();
            self.waiting.push_rows(columns, &picked);
            from = end;
            if self.waiting.rows() == self.group_rows {
                self.end_group().map_err(|error| failed(&self.at, error))?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> std::result::Result<(), DataError> {
        let finish = |writer: &mut Box<Self>| {
            if writer.waiting.rows() > 0 {
                writer.end_group()?;
            }
            writer.file.finish()?;
            writer.file.flush().map_err(|error| ParquetError::External(Box::new(error)))
        };
        finish(&mut self).map_err(|error| failed(&self.at, error))
    }
}

/// Definition and repetition levels of ids.
fn levels(ids: &Ids) -> (Vec<i16>, Vec<i16>) {
    let (mut def, mut rep) = (Vec::with_capacity(ids.ids.len()), Vec::with_capacity(ids.ids.len()));
    for ends in ids.offsets.windows(2) {
        let length = ends[1] - ends[0];
        def.push(i16::from(length > 0));
        rep.push(0);
        for _ in 1..length {
            def.push(1);
            rep.push(1);
        }
    }
    (def, rep)
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    values: &[T::T],
    def: Option<&[i16]>,
    rep: Option<&[i16]>,
) -> Result<()> {
    let mut column = group.next_column()?.expect("the schema has this column");
    column.typed::<T>().write_batch(values, def, rep)?;
    column.close()
}

/// The schema in the order in which columns are written.
fn types(schema: &Schema) -> Result<TypePtr> {
    let unsigned = |bits| Some(LogicalType::integer(bits, false));
    let field = |name: &str, kind, repetition, logical| {
        Type::primitive_type_builder(name, kind)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    };
    let description = &schema.description;
    let mut fields = vec![field(&description.label, Physical::INT32, Repetition::REQUIRED, unsigned(8))?];
    if let Some(name) = &description.weight {
        fields.push(field(name, Physical::FLOAT, Repetition::REQUIRED, None)?);
    }
    if let Some(name) = &description.time {
        fields.push(field(name, Physical::INT64, Repetition::REQUIRED, None)?);
    }
    for (name, kind) in description.numbers.iter().zip(&schema.numbers) {
        let physical = if *kind == ColumnKind::Integer { Physical::INT64 } else { Physical::DOUBLE };
        fields.push(field(name, physical, Repetition::OPTIONAL, None)?);
    }
    for (category, kind) in description.categories.iter().zip(&schema.categories) {
        let name = &category.name;
        if *kind == ColumnKind::List {
            let element = field("element", Physical::INT64, Repetition::REQUIRED, unsigned(64))?;
            let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
            let list = list.with_fields(vec![Arc::new(element)]).build()?;
            let outer = Type::group_type_builder(name).with_repetition(Repetition::REQUIRED);
            let outer = outer.with_logical_type(Some(LogicalType::List)).with_fields(vec![Arc::new(list)]);
            fields.push(outer.build()?);
        } else {
            fields.push(field(name, Physical::INT64, Repetition::OPTIONAL, unsigned(64))?);
        }
    }
    let fields = fields.into_iter().map(Arc::new).collect();
    Ok(Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?))
}

fn failed(at: &At, error: ParquetError) -> DataError {
    let source = match error {
        ParquetError::External(source) => std::io::Error::other(source),
        other => std::io::Error::other(other.to_string()),
    };
    at.clone().error(Fault::Io { doing: "writing", source })
}

impl std::fmt::Debug for ParquetWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ParquetWriter").field("at", &self.at).finish_non_exhaustive()
    }
}
