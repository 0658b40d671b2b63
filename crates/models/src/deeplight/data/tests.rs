use std::{fs, sync::Arc};

use super::*;

const READING: Reading = Reading { min_count: 2, test: 0.25 };

/// A line of Criteo's with these numbers and hashes in front, the other columns empty.
fn line(label: &str, number: &str, hash: &str) -> String {
    format!("{label}\t{number}{}\t{hash}{}\n", "\t".repeat(12), "\t".repeat(25))
}

fn write(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("train.txt");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn open(text: &str) -> Result<Dataset, DataError> {
    let (_directory, path) = write(text);
    Dataset::open(path.to_str().unwrap(), READING, 1)
}

fn error(text: &str) -> String {
    let error = open(text).unwrap_err().to_string();
    // Without the name of the directory.
    error.split_once("train.txt ").map(|(_, rest)| rest.to_owned()).unwrap_or(error)
}

fn rows(dataset: Dataset, range: Range<usize>) -> Vec<Row> {
    let dataset = Arc::new(dataset);
    let mut cursor = Cursor::new(&dataset, range).unwrap();
    let (mut rows, mut row) = (Vec::new(), Row::default());
    while cursor.read(&mut row, |_| true).unwrap() {
        rows.push(row.clone());
    }
    rows
}

#[test]
fn rows_of_criteo_have_a_feature_of_each_field() {
    let text = [
        line("0", "1", "68fd1e64"),
        line("1", "3", "68fd1e64"),
        // A blank line, and one with the end of line of Windows.
        "\n".to_owned(),
        line("1", "4", "05db9164").replace('\n', "\r\n"),
        line("0", "4", "05db9164"),
    ];
    let text = text.concat();
    let dataset = open(&text).unwrap();
    assert_eq!(dataset.layout, Layout::Fields(39));
    assert_eq!(dataset.files, [DataFile { name: "train.txt".to_owned(), bytes: text.len() as u64 }]);
    assert_eq!((dataset.name.as_str(), dataset.train_rows(), dataset.test_rows()), ("train.txt", 0..3, 3..4));
    assert_eq!((dataset.train.clicks, dataset.test.clicks), (2, 0));
    // 3 and 4 are one bin, 68fd1e64 occurs twice: each has a row; 1 and 05db9164 are rare, as is what only the test has.
    assert_eq!((dataset.vocabulary.values(), dataset.vocabulary.rows()), (2, 2 * 39 + 2));
    let rows = rows(dataset, 0..4);
    let found: Vec<(bool, u32, u32)> =
        rows.iter().map(|row| (row.clicked, row.parameters[0], row.parameters[13])).collect();
    // The first field has rows 0 to 2, the fourteenth those from 27 on.
    assert_eq!(found, [(false, 1, 29), (true, 2, 29), (true, 2, 28), (false, 2, 28)]);
    assert!(rows.iter().all(|row| row.parameters.len() == 39 && row.parameters[1] == 3));
}

#[test]
fn bags_have_any_number_of_features() {
    let dataset = open("0\t7 9\n1\t9 9 1048575\n0\t\n1\t7 5\n").unwrap();
    assert_eq!((dataset.layout, dataset.vocabulary.rows()), (Layout::Bag, 3));
    let rows: Vec<Vec<u32>> = rows(dataset, 0..4).into_iter().map(|row| row.parameters).collect();
    assert_eq!(rows, [vec![1, 2], vec![2, 2, 1], vec![0], vec![1, 1]]);
}

#[test]
fn a_log_that_is_streamed_has_the_rows_of_one_that_is_held() {
    let text: String = (0..9000)
        .map(|row| line(&(row % 2).to_string(), &(row % 50).to_string(), &format!("{:x}", row % 700)))
        .collect();
    let (_directory, path) = write(&text);
    let read = |held| Dataset::read(&path, "log".into(), READING, held).unwrap();
    assert!(matches!((&read(9000).log, &read(8999).log), (Log::Held(_), Log::File(_))));
    // Parts that begin before, at and behind the places that are known.
    for range in [0..9000, 4095..4099, 4096..4097, 255..513, 8999..9000, 5000..5000] {
        assert_eq!(rows(read(9000), range.clone()), rows(read(0), range));
    }
    let dataset = Arc::new(read(0));
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    let mut cursor = Cursor::new(&dataset, 4090..9000).unwrap();
    let mut row = Row::default();
    let failed = (0..9000).find_map(|_| cursor.read(&mut row, |_| true).err());
    assert!(failed.is_some());
}

#[test]
fn errors_name_the_line() {
    let good = line("0", "1", "68fd1e64");
    let bad = |bad: String| error(&(good.clone() + &bad));
    assert_eq!(bad(line("2", "", "")), "line 2: expected a label, 0 or 1, found \"2\"");
    assert_eq!(bad(line("0", "1.5", "")), "line 2: expected a whole number, or nothing, found \"1.5\"");
    let hash = "line 2: expected a hash of up to 8 hexadecimal digits, or nothing, found \"xyz\"";
    assert_eq!(bad(line("0", "", "xyz")), hash);
    assert!(bad("0\t1\n".into()).starts_with("line 2: expected 40 columns between tabs"));
    assert!(
        error("0,1,2\n").starts_with("line 1: expected 40 columns between tabs, as Criteo has them, or 2")
    );
    let key = "line 2: expected a key, a whole number below 1048576, found \"1048576\"";
    assert_eq!(error("0\t5\n1\t1048576\n"), key);
    assert!(error(&format!("0\t5\n1\t{}\n", "5 ".repeat(1025))).contains("expected at most 1024 keys"));
    assert!(error(&"5".repeat(1 << 21)).contains("shorter than 1 MiB"));
    assert_eq!(error("\n\n"), "holds no rows");
    assert_eq!(error("0\t5\n"), "has 1 rows: at least 2 are needed, to learn from and to test");
}

#[test]
fn a_directory_holds_one_log() {
    let (directory, path) = write(&line("0", "1", "68fd1e64").repeat(4));
    let open = || Dataset::open(directory.path().to_str().unwrap(), READING, 1);
    fs::write(directory.path().join("readme.md"), "text").unwrap();
    assert_eq!(open().unwrap().train.rows, 3);
    fs::write(directory.path().join("test.txt"), "text").unwrap();
    assert_eq!(open().unwrap().train.rows, 3);
    fs::rename(&path, directory.path().join("other.txt")).unwrap();
    assert!(open().unwrap_err().to_string().contains("holds no file `train.txt`"));
    fs::remove_file(directory.path().join("test.txt")).unwrap();
    assert_eq!(open().unwrap().train.rows, 3);
    assert!(matches!(Dataset::open("/no/such/log", READING, 1), Err(DataError::Missing { .. })));
}

#[test]
fn synthetic_data_follow_from_their_seed() {
    let make = |seed| Synthetic { rows: 1000, seed, ..Synthetic::default() }.generate(READING).unwrap();
    let (one, same, other) = (make(1), make(1), make(2));
    assert_eq!(one.train, same.train);
    assert_eq!(one.layout, Layout::Fields(10));
    let [one, same, other] = [one, same, other].map(|dataset| rows(dataset, 0..1000));
    assert_eq!(one, same);
    assert_ne!(one, other);
    assert!(Synthetic { rows: 1, ..Synthetic::default() }.generate(READING).is_err());
    let bent = Synthetic { values: vec![0], lanes: 0, ..Synthetic::default() }.generate(READING).unwrap();
    assert_eq!(bent.vocabulary.rows(), 3);
}
