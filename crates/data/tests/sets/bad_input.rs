//! Each error names the file and, as far as there are any, row group, column and row.

use std::fs;

use libra_data::{DataSet, Description, Options, OutputFormat};

use crate::support::{Cells, Column, Directory, error_of, make, open, parquet, text};

const SCHEMA: &str = "message m { optional int32 label; optional double price; optional int64 user; }";
const DESCRIPTION: &str = "label = \"label\"\nnumbers = [\"price\"]\ncategories = [\"user\"]";

fn options(description: &str) -> Options {
    Options { description: Some(Description::parse(description).unwrap()), ..Options::default() }
}

fn flat(cells: Cells, def: &[i16]) -> Column {
    (cells, Some(def.to_vec()), None)
}

/// Three good rows.
fn good() -> Vec<Column> {
    vec![
        flat(Cells::Int32(vec![0, 1, 1]), &[1, 1, 1]),
        flat(Cells::Double(vec![0.5, 1.5]), &[1, 0, 1]),
        flat(Cells::Int64(vec![7, 8, 9]), &[1, 1, 1]),
    ]
}

/// The error for a file whose second row group has another column.
fn error_with(column: usize, cells: Column) -> String {
    let directory = Directory::new();
    let mut second = good();
    second[column] = cells;
    parquet(&directory.path("a.parquet"), SCHEMA, vec![good(), second]);
    let error = error_of(&directory.place("a.parquet"), &options(DESCRIPTION));
    assert!(error.contains("a.parquet, row group 1, column "), "{error}");
    error
}

#[test]
fn bad_values_in_parquet_are_named_with_their_row() {
    let error = error_with(0, flat(Cells::Int32(vec![0, 1]), &[1, 1, 0]));
    assert!(error.ends_with("column label, row 5: expected a label, 0 or 1, found \"null\""), "{error}");
    let error = error_with(0, flat(Cells::Int32(vec![0, 2, 1]), &[1, 1, 1]));
    assert!(error.ends_with("column label, row 4: expected a label, 0 or 1, found \"2\""), "{error}");
    let error = error_with(1, flat(Cells::Double(vec![f64::NAN, 1.0]), &[0, 1, 1]));
    assert!(
        error.ends_with("column price, row 4: expected a finite number, or null, found \"NaN\""),
        "{error}"
    );
    let error = error_with(1, flat(Cells::Double(vec![f64::INFINITY; 3]), &[1, 1, 1]));
    assert!(error.contains("column price, row 3: expected a finite number"), "{error}");
    let error = error_with(2, flat(Cells::Int64(vec![7, 8, -1]), &[1, 1, 1]));
    assert!(error.ends_with("column user, row 5: expected an id, not negative, found \"-1\""), "{error}");
}

#[test]
fn labels_and_weights_that_are_no_numbers_are_named() {
    let directory = Directory::new();
    let place = directory.place("a.parquet");
    let options = options("label = \"label\"\nweight = \"weight\"\ncategories = [\"user\"]");
    let schema = "message m { required float label; optional double weight; required int64 user; }";
    let error = |labels: [f32; 2], weights: &[f64], def: [i16; 2]| {
        let weights = flat(Cells::Double(weights.to_vec()), &def);
        let columns = [(Cells::Float(labels.to_vec()), None, None), weights];
        let users = (Cells::Int64(vec![1, 2]), None, None);
        parquet(place.as_ref(), schema, vec![columns.into_iter().chain([users]).collect()]);
        error_of(&place, &options)
    };
    let label = error([0.0, f32::NAN], &[1.0, 1.0], [1, 1]);
    assert!(
        label.ends_with("row group 0, column label, row 1: expected a label, 0 or 1, found \"NaN\""),
        "{label}"
    );
    for (weights, def, found) in [
        (&[1.0, f64::NAN][..], [1, 1], "NaN"),
        (&[1.0, f64::INFINITY], [1, 1], "inf"),
        (&[1.0, -0.5], [1, 1], "-0.5"),
        (&[1.0], [1, 0], "null"),
    ] {
        let weight = error([0.0, 1.0], weights, def);
        let expected =
            format!("column weight, row 1: expected a weight, finite and not negative, found \"{found}\"");
        assert!(weight.ends_with(&expected), "{weight}");
    }
}

#[test]
fn bad_values_in_lists_are_named_with_their_row() {
    let directory = Directory::new();
    let schema = "message m { required int32 label; optional group tags (LIST) { repeated group list { optional int32 element; } } }";
    // Rows: [1], [], [2, -3].
    let tags = (Cells::Int32(vec![1, 2, -3]), Some(vec![3, 1, 3, 3]), Some(vec![0, 0, 0, 1]));
    parquet(
        &directory.path("a.parquet"),
        schema,
        vec![vec![(Cells::Int32(vec![0, 1, 0]), None, None), tags]],
    );
    let error =
        error_of(&directory.place("a.parquet"), &options("label = \"label\"\ncategories = [\"tags\"]"));
    assert!(
        error.ends_with("row group 0, column tags, row 2: expected an id, not negative, found \"-3\""),
        "{error}"
    );
}

#[test]
fn columns_without_a_place_or_a_fitting_type_are_named() {
    let directory = Directory::new();
    let place = directory.place("a.parquet");
    parquet(place.as_ref(), SCHEMA, vec![good()]);
    let missing = error_of(&place, &options("label = \"label\"\nnumbers = [\"weight\"]"));
    assert!(
        missing
            .ends_with("a.parquet, column weight: the file has no such column; it has: label, price, user"),
        "{missing}"
    );
    let wrong = error_of(&place, &options("label = \"label\"\ncategories = [\"price\"]"));
    assert!(
        wrong.ends_with(
            "column price: the column has the type DOUBLE, expected whole numbers or texts, or a list of them"
        ),
        "{wrong}"
    );
    let none = error_of(&place, &Options::default());
    assert!(none.contains("a.parquet: needs a dataset.toml"), "{none}");
    let nested = "message m { required int32 label; repeated group a { repeated int32 b; } required int64 d (DECIMAL(18, 2)); }";
    let column = || (Cells::Int32(vec![1]), None, None);
    let deep = (Cells::Int32(vec![1]), Some(vec![2]), Some(vec![0]));
    parquet(place.as_ref(), nested, vec![vec![column(), deep, (Cells::Int64(vec![1]), None, None)]]);
    let error = error_of(&place, &options("label = \"label\"\ncategories = [\"a\"]"));
    assert!(error.contains("the type nested list of INT32"), "{error}");
    let error = error_of(&place, &options("label = \"label\"\nnumbers = [\"d\"]"));
    assert!(error.contains("the type INT64 (decimal)"), "{error}");
}

/// A later file with other columns is named, and the columns of the first do not matter.
#[test]
fn a_file_that_differs_is_named() {
    let directory = Directory::new();
    fs::create_dir(directory.path("set")).unwrap();
    fs::write(directory.path("set/dataset.toml"), DESCRIPTION).unwrap();
    parquet(&directory.path("set/a.parquet"), SCHEMA, vec![good()]);
    let text = "message m { optional int32 label; optional binary price; optional int64 user; }";
    let mut columns = good();
    columns[1] = flat(Cells::Text(vec!["a", "b"]), &[1, 0, 1]);
    parquet(&directory.path("set/b.parquet"), text, vec![columns]);
    let error = error_of(&directory.place("set"), &Options::default());
    let wrong = "b.parquet, column price: the column has the type text, expected a number, not a list";
    assert!(error.ends_with(wrong), "{error}");
}

/// The same id would have two keys. Columns of nothing but nulls have any type.
#[test]
fn one_column_with_two_types_is_refused() {
    let directory = Directory::new();
    fs::create_dir(directory.path("set")).unwrap();
    fs::write(directory.path("set/dataset.toml"), DESCRIPTION).unwrap();
    let file = |name: &str, user: &str, cells| {
        let schema = "message m { optional int32 label; optional double price; optional USER; }";
        let mut columns = good();
        columns[2] = cells;
        let path = directory.path(&format!("set/{name}.parquet"));
        parquet(&path, &schema.replace("USER", user), vec![columns]);
    };
    let numbers = || flat(Cells::Int64(vec![7, 8, 9]), &[1, 1, 1]);
    file("b", "int64 user", numbers());
    file("c", "int32 user", flat(Cells::Int32(vec![7, 8, 9]), &[1, 1, 1]));
    file("a", "int32 user (UNKNOWN)", flat(Cells::Int32(vec![]), &[0, 0, 0]));
    assert_eq!(open(&directory.place("set")).rows(), 9);
    file("d", "binary user (STRING)", flat(Cells::Text(vec!["7", "8", "9"]), &[1, 1, 1]));
    let error = error_of(&directory.place("set"), &Options::default());
    let (first, other) = (directory.place("set/b.parquet"), directory.place("set/d.parquet"));
    let types = format!("the column has the type text, but INT64 in {first}: give it one type in all files");
    assert_eq!(error, format!("{other}, column user: {types}"));
}

/// The library that decodes has no feature for it, which only its footer shows in time.
#[test]
fn a_codec_that_is_not_read_is_named() {
    use ::parquet::basic::{BrotliLevel, Compression};
    use ::parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};

    let directory = Directory::new();
    let place = directory.place("a.parquet");
    parquet(place.as_ref(), SCHEMA, vec![good()]);
    let mut metadata = ParquetMetaDataReader::new();
    metadata.try_parse(&fs::File::open(&place).unwrap()).unwrap();
    let metadata = metadata.finish().unwrap();
    let mut groups = metadata.row_groups().to_vec();
    let mut columns = groups[0].columns().to_vec();
    let brotli = Compression::BROTLI(BrotliLevel::default());
    columns[1] = columns[1].clone().into_builder().set_compression(brotli).build().unwrap();
    groups[0] = groups[0].clone().into_builder().set_column_metadata(columns).build().unwrap();
    let metadata = metadata.into_builder().set_row_groups(groups).build();
    let mut bytes = fs::read(&place).unwrap();
    ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().unwrap();
    fs::write(&place, bytes).unwrap();
    let error = error_of(&place, &options(DESCRIPTION));
    assert!(error.contains("a.parquet, row group 0, column price: the column is compressed by brotli"));
    assert!(error.ends_with("write it with snappy, zstd, gzip or lz4, or uncompressed"), "{error}");
}

#[test]
fn damaged_parquet_is_named() {
    let directory = Directory::new();
    let place = directory.place("a.parquet");
    let options = options(DESCRIPTION);
    parquet(place.as_ref(), SCHEMA, vec![good(), good()]);
    let whole = fs::read(&place).unwrap();
    let error = |bytes: &[u8]| {
        fs::write(&place, bytes).unwrap();
        let error = error_of(&place, &options);
        assert!(error.contains("a.parquet"), "{error}");
        error
    };
    assert!(error(b"").ends_with("holds no rows"));
    assert!(error(b"PAR1PAR1").contains("the file is cut off"));
    let cut = error(&whole[..whole.len() - 20]);
    assert!(cut.contains("the file is cut off: it does not end in the footer of Parquet"), "{cut}");
    let mut long = whole.clone();
    let length = long.len() - 8;
    long[length..length + 4].copy_from_slice(&1_000_000u32.to_le_bytes());
    assert!(error(&long).contains("the file is cut off: its footer is longer than the file"));
    let mut encrypted = whole.clone();
    *encrypted.last_mut().unwrap() = b'E';
    assert!(
        error(&encrypted).ends_with("the file is encrypted, which Libra does not read: decrypt it first")
    );
    // Without its first pages, the offsets of the footer point behind the end, or into other pages.
    assert!(error(&whole[60..]).contains("row group"));
    // The head of the first page of the first column.
    let mut page = whole.clone();
    page[4..12].fill(0xff);
    let page = error(&page);
    assert!(page.contains("row group 0, column label, row 0: damaged or unsupported Parquet"), "{page}");
}

/// No byte of a file makes the reader panic, whatever becomes of it.
#[test]
fn no_changed_byte_panics() {
    let directory = Directory::new();
    let place = directory.place("a.parquet");
    let options = options(DESCRIPTION);
    parquet(place.as_ref(), SCHEMA, vec![good()]);
    let whole = fs::read(&place).unwrap();
    let mut refused = 0;
    for at in 0..whole.len() {
        for change in [0xff, 0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            fs::write(&place, &bytes).unwrap();
            let read = DataSet::open(&place, &options).and_then(|set| {
                let mut columns = set.schema().columns();
                set.chunks().iter().try_for_each(|chunk| set.read(chunk)?.read(100, &mut columns).map(|_| ()))
            });
            refused += usize::from(read.is_err());
        }
    }
    assert!(refused > whole.len() / 2, "{refused} of {}", 3 * whole.len());
}

#[test]
fn a_file_that_changes_is_refused() {
    let directory = Directory::new();
    for format in [OutputFormat::Parquet, OutputFormat::Text] {
        let place = directory.place(&format!("{format:?}"));
        make(place.as_ref(), 100, format, 100, 50);
        let set = open(&place);
        let file = set.files().next().unwrap().name.clone();
        let mut bytes = fs::read(&file).unwrap();
        bytes.extend_from_slice(b"0");
        fs::write(&file, bytes).unwrap();
        let error = set.read(&set.chunks()[0]).unwrap_err().to_string();
        assert!(error.contains(&file) && error.contains("has changed since"), "{error}");
    }
}

#[test]
fn bad_text_is_named_with_its_line() {
    let directory = Directory::new();
    let place = directory.path("day_0");
    make(&directory.path("made"), 5, OutputFormat::Text, 5, 5);
    let good = fs::read_to_string(directory.path("made/day_0")).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    let error = |third: &str| {
        fs::write(&place, format!("{}\n\n{third}\n{}\n", lines[0], lines[1])).unwrap();
        error_of(&text(&place), &Options::default())
    };
    let label = error(&format!("2{}", &lines[2][1..]));
    assert!(label.ends_with("day_0, column label, line 3: expected a label, 0 or 1, found \"2\""), "{label}");
    let short = error("1\t2\t3");
    assert!(short.contains("day_0, line 3: expected 40 columns"), "{short}");
    let none = error(&"\t".repeat(39));
    assert!(none.contains("column label, line 3: expected a label, 0 or 1, found \"\""), "{none}");
    let mut fields: Vec<&str> = lines[2].split('\t').collect();
    fields[3] = "nan";
    assert!(
        error(&fields.join("\t"))
            .contains("column I3, line 3: expected a whole number, or nothing, found \"nan\"")
    );
    let long = error(&"a".repeat(2 << 20));
    assert!(long.contains("line 3: expected a line of text, shorter than 1 MiB"), "{long}");
    fs::write(&place, "\n  \n").unwrap();
    assert!(error_of(&text(&place), &Options::default()).ends_with("day_0: holds no rows"));
}

#[test]
fn a_packed_text_that_is_cut_is_named() {
    let directory = Directory::new();
    for (format, name) in [(OutputFormat::Gzip, "day_0.gz"), (OutputFormat::Zstd, "day_0.zst")] {
        make(&directory.path(name), 2000, format, 2000, 5);
        let bytes = fs::read(directory.path(&format!("{name}/{name}"))).unwrap();
        let cut = directory.place(&format!("cut-{name}"));
        // In the middle; behind the last line, in what checks it; and by a byte.
        for length in [bytes.len() / 2, bytes.len() - 4, bytes.len() - 1] {
            fs::write(&cut, &bytes[..length]).unwrap();
            let error = error_of(&cut, &Options::default());
            assert!(error.contains(&cut) && error.contains("line "), "{error}");
            assert!(error.ends_with("the file is cut off: the packed text has no end"), "{error}");
        }
    }
    let no_gzip = directory.place("plain.gz");
    fs::write(&no_gzip, "1\t2\t3\t4\t5\t6\n").unwrap();
    let error = error_of(&no_gzip, &Options::default());
    assert!(error.contains("plain.gz, line 1: unpacking failed"), "{error}");
}

#[test]
fn places_without_data_are_named() {
    let directory = Directory::new();
    let error = |place: &str| error_of(place, &Options::default());
    let nowhere = directory.place("nowhere");
    assert_eq!(error(&nowhere), format!("{nowhere}: there is no such file or directory"));
    let pattern = directory.place("*.parquet");
    assert_eq!(error(&pattern), format!("{pattern}: no file matches the pattern"));
    fs::write(directory.path("README.txt"), "words").unwrap();
    fs::write(directory.path("data.gz"), "").unwrap();
    let none = error(&directory.place(""));
    assert!(none.contains("holds no data files") && none.ends_with("by a pattern, such as '*.gz'"), "{none}");
    fs::write(directory.path("a.parquet"), "").unwrap();
    fs::write(directory.path("b.txt"), "").unwrap();
    assert!(error(&directory.place("")).contains("holds both Parquet and text"));
    fs::write(directory.path("dataset.toml"), "label = 3").unwrap();
    let bad = error(&directory.place("b.txt"));
    let toml = directory.place("dataset.toml");
    assert!(bad.starts_with(&format!("{toml}: the description is not right: line 1: ")), "{bad}");
    assert_eq!(bad.lines().count(), 1, "{bad}");
    fs::write(directory.path("dataset.toml"), "label = \"y\"").unwrap();
    let other = error(&directory.place("b.txt"));
    assert!(other.starts_with(&format!("{toml}: the description is not right: text is Criteo's")), "{other}");
}

/// A Parquet file without rows, or with a group of none, is no error by itself.
#[test]
fn a_set_without_rows_is_refused() {
    let directory = Directory::new();
    fs::create_dir(directory.path("set")).unwrap();
    fs::write(directory.path("set/dataset.toml"), DESCRIPTION).unwrap();
    parquet(&directory.path("set/a.parquet"), SCHEMA, vec![]);
    assert!(error_of(&directory.place("set"), &Options::default()).contains("a.parquet: holds no rows"));
    parquet(&directory.path("set/b.parquet"), SCHEMA, vec![good()]);
    assert_eq!(open(&directory.place("set")).rows(), 3);
}
