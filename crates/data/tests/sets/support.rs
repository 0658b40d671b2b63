//! Data sets for the tests.

use std::path::{Path, PathBuf};

use libra_data::{Chunk, Columns, DataSet, Environment, Make, Options, Output, OutputFormat};
use tempfile::TempDir;

use crate::server::Server;

/// A directory with a name in ASCII.
pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn place(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Made rows in one of the formats.
pub(crate) fn make(directory: &Path, rows: u64, format: OutputFormat, file_rows: u64, group_rows: usize) {
    let output = Output { format, file_rows, group_rows };
    Make { rows, seed: 5, ..Make::default() }.write(directory, &output, &mut |_| {}).unwrap();
}

pub(crate) fn open(place: &str) -> DataSet {
    DataSet::open(place, &Options::default()).unwrap()
}

/// Options that lead to a server, with these variables instead of keys.
pub(crate) fn options(server: &Server, more: &[(&str, &str)]) -> Options {
    let keys = [("AWS_ACCESS_KEY_ID", "libra"), ("AWS_SECRET_ACCESS_KEY", "geheim")];
    let more = if more.is_empty() { &keys[..] } else { more };
    let more = more.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let environment: Environment = server.variables().into_iter().chain(more).collect();
    Options { environment: Some(environment), retries: Some(3), ..Options::default() }
}

/// All rows of chunks, read by `step` rows.
pub(crate) fn read(set: &DataSet, chunks: &[Chunk], step: usize) -> Columns {
    let mut columns = set.schema().columns();
    for chunk in chunks {
        let mut reader = set.read(chunk).unwrap();
        let mut rows = 0;
        loop {
            match reader.read(step, &mut columns).unwrap() {
                0 => break,
                read => rows += read as u64,
            }
        }
        assert_eq!(rows, chunk.rows);
    }
    columns
}

pub(crate) fn read_all(set: &DataSet) -> Columns {
    read(set, set.chunks(), 777)
}

/// The message of the error that reading all of a place ends with.
pub(crate) fn error_of(place: &str, options: &Options) -> String {
    let read = || -> Result<(), libra_data::DataError> {
        let set = DataSet::open(place, options)?;
        let mut columns = set.schema().columns();
        for chunk in set.chunks() {
            let mut reader = set.read(chunk)?;
            while reader.read(100, &mut columns)? > 0 {}
        }
        Ok(())
    };
    read().expect_err("the data are bad").to_string()
}

/// Values of a column, with definition and repetition levels.
pub(crate) enum Cells {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Text(Vec<&'static str>),
}

pub(crate) type Column = (Cells, Option<Vec<i16>>, Option<Vec<i16>>);

/// Writes a Parquet file: the schema in the language of its parser, and for each row group its columns.
pub(crate) fn parquet(path: &Path, schema: &str, groups: Vec<Vec<Column>>) {
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let file = std::fs::File::create(path).unwrap();
    let schema = parse_message_type(schema).unwrap().into();
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut file = SerializedFileWriter::new(file, schema, properties.into()).unwrap();
    for columns in groups {
        let mut group = file.next_row_group().unwrap();
        for (cells, def, rep) in columns {
            let mut column = group.next_column().unwrap().unwrap();
            let (def, rep) = (def.as_deref(), rep.as_deref());
            match cells {
                Cells::Int32(values) => column.typed::<Int32Type>().write_batch(&values, def, rep),
                Cells::Int64(values) => column.typed::<Int64Type>().write_batch(&values, def, rep),
                Cells::Float(values) => column.typed::<FloatType>().write_batch(&values, def, rep),
                Cells::Double(values) => column.typed::<DoubleType>().write_batch(&values, def, rep),
                Cells::Text(values) => {
                    let values: Vec<ByteArray> = values.into_iter().map(ByteArray::from).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, def, rep)
                }
            }
            .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    file.close().unwrap();
}
