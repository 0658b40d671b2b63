//! Data sets: descriptions, texts, and files of Parquet.

use std::fs;
use std::path::Path;

use libra_data::{
    Category, ColumnKind, Columns, DataError, DataSet, Description, Fault, Keys, Make, Options, Output,
    OutputFormat, Schema, Text, Writer,
};
use libra_fuzz::{Outcome, Target};
use tempfile::TempDir;

/// The decoder of Parquet panics for some pages, which is caught: the backtrace that is printed takes most of this.
const PARQUET_BYTES: u64 = 128 << 20;

fn description() -> Description {
    let category = |name: &str, text| Category { name: name.to_owned(), text };
    Description {
        keys: Keys::Hashed,
        label: "clicked".to_owned(),
        weight: Some("weight".to_owned()),
        time: None,
        numbers: vec!["price".to_owned()],
        categories: vec![category("user", Text::Any), category("tags", Text::Hex)],
    }
}

fn file(name: &str, write: impl FnOnce(&Path)) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    fs::read(directory.path().join(name)).unwrap()
}

pub(crate) fn read_description(bytes: &[u8]) -> Outcome {
    let Ok(text) = str::from_utf8(bytes) else { return Outcome::refused("no text") };
    let read = Description::parse(text);
    if let Ok(description) = &read {
        assert_eq!(Description::parse(&description.to_toml()).unwrap(), *description);
    }
    Outcome::of(&read)
}

pub(crate) fn descriptions() -> Target {
    let seeds = [Description::criteo(), description()].map(|seed| seed.to_toml().into_bytes());
    Target::new("description", seeds.to_vec())
}

/// Reads a file whole. An error names it, and is of the kind that a file on a disk can have.
fn read(name: &str, bytes: &[u8], options: Options) -> Outcome {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    let place = path.to_str().unwrap();
    // No index is kept.
    let options = Options { index_directory: Some("/dev/null/none".into()), ..options };
    let check = |error: DataError| {
        assert!(error.to_string().starts_with(place), "{error}");
        assert!(!matches!(error.fault, Fault::Io { .. } | Fault::Object(_)), "{error}");
        Outcome::of::<(), _>(&Err(error.fault))
    };
    let set = match DataSet::open(place, &options) {
        Ok(set) => set,
        Err(error) => return check(error),
    };
    let mut columns = Columns::default();
    for chunk in set.chunks() {
        let mut left = chunk.rows;
        let mut reader = match set.read(chunk) {
            Ok(reader) => reader,
            Err(error) => return check(error).past_the_first_check(),
        };
        loop {
            columns = set.schema().columns();
            match reader.read(100, &mut columns) {
                Ok(0) => break,
                Ok(rows) => {
                    assert_eq!(columns.rows(), rows);
                    left -= rows as u64;
                }
                Err(error) => return check(error).past_the_first_check(),
            }
        }
        assert_eq!(left, 0);
    }
    assert_eq!(columns.rows(), 0);
    Outcome::beyond("ok")
}

pub(crate) fn read_text(bytes: &[u8]) -> Outcome {
    read("day_0", bytes, Options::default())
}

pub(crate) fn texts() -> Target {
    let output = Output { format: OutputFormat::Text, file_rows: 5, ..Output::default() };
    let made = |directory: &Path| Make { rows: 3, ..Make::default() }.write(directory, &output, &mut |_| ());
    let seed = file("day_0", |directory| made(directory).unwrap());
    Target::new("text", vec![seed])
}

pub(crate) fn read_parquet(bytes: &[u8]) -> Outcome {
    read("a.parquet", bytes, Options { description: Some(description()), ..Options::default() })
}

pub(crate) fn parquets() -> Target {
    let kinds = (vec![ColumnKind::Float], vec![ColumnKind::Id, ColumnKind::List]);
    let schema = Schema { description: description(), numbers: kinds.0, categories: kinds.1 };
    let mut rows = schema.columns();
    for row in 0..5u32 {
        rows.labels.push(f32::from(u8::from(row == 2)));
        rows.weights.push(1.5);
        rows.numbers[0].push(if row == 1 { f64::NAN } else { f64::from(row) });
        for (column, ids) in rows.categories.iter_mut().zip([1, row]) {
            column.ids.extend((0..ids).map(u64::from));
            column.offsets.push(u32::try_from(column.ids.len()).unwrap());
        }
    }
    let output = Output { group_rows: 3, ..Output::default() };
    let seed = file("part-00000.parquet", |directory| {
        let mut writer = Writer::create(directory.join("set").as_path(), &schema, &output).unwrap();
        writer.write(&rows).unwrap();
        writer.finish().unwrap();
        fs::rename(directory.join("set/part-00000.parquet"), directory.join("part-00000.parquet")).unwrap();
    });
    Target::new("parquet", vec![seed]).with_memory(PARQUET_BYTES)
}
