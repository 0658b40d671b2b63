//! One set in all formats, and its order.

use crate::support::{Directory, make, open, read, read_all, text};
use libra_data::{
    Columns, DataSet, Destination, Environment, Keys, Make, Options, Output, OutputFormat, Schema, Selection,
    Shuffle, ShuffleSettings, Split, Writer, shuffle_on_disk,
};

const FORMATS: [OutputFormat; 4] =
    [OutputFormat::Text, OutputFormat::Gzip, OutputFormat::Zstd, OutputFormat::Parquet];

#[test]
fn all_formats_give_bit_equal_batches() {
    let directory = Directory::new();
    let batches = FORMATS.map(|format| {
        let place = directory.place(&format!("{format:?}"));
        make(place.as_ref(), 3000, format, 1100, 400);
        let set = open(&place);
        assert_eq!((set.rows(), set.files().count()), (3000, 3), "{format:?}");
        let columns = read_all(&set);
        (0..3).map(|batch| rows(&columns, batch * 1000..(batch + 1) * 1000).checksum()).collect::<Vec<_>>()
    });
    assert!(batches.iter().all(|sums| *sums == batches[0]), "{batches:x?}");
    assert_ne!(batches[0][0], batches[0][1]);
}

fn rows(columns: &Columns, range: std::ops::Range<usize>) -> Columns {
    let mut picked = Schema::criteo().columns();
    range.for_each(|row| picked.push_row(columns, row));
    picked
}

#[test]
fn a_chunk_is_read_alike_in_any_steps() {
    let directory = Directory::new();
    for format in FORMATS {
        let place = directory.place(&format!("{format:?}"));
        make(place.as_ref(), 500, format, 500, 130);
        let set = open(&place);
        let whole = read_all(&set).checksum();
        for step in [1, 7, 1000] {
            assert_eq!(read(&set, set.chunks(), step).checksum(), whole, "{format:?}");
        }
    }
}

#[test]
fn parts_of_chunks_are_the_whole() {
    let directory = Directory::new();
    for format in FORMATS {
        let place = directory.place(&format!("{format:?}"));
        make(place.as_ref(), 1000, format, 400, 90);
        let set = open(&place);
        let (mut train, test) = set.split(Split::Tail(0.33));
        assert_eq!(test.iter().map(|chunk| chunk.rows).sum::<u64>(), 330);
        train.extend(test);
        assert_eq!(read(&set, &train, 64).checksum(), read_all(&set).checksum(), "{format:?}");
    }
}

#[test]
fn the_last_file_is_split_as_mlperf_does() {
    let directory = Directory::new();
    let place = directory.place("days");
    make(place.as_ref(), 23, OutputFormat::Text, 8, 8);
    let set = open(&place);
    let (train, test) = set.split(Split::LastFile);
    assert_eq!(train.iter().map(|chunk| (chunk.file, chunk.rows)).collect::<Vec<_>>(), [(0, 8), (1, 8)]);
    assert_eq!(
        test.iter().map(|chunk| (chunk.file, chunk.skip, chunk.rows)).collect::<Vec<_>>(),
        [(2, 0, 4)]
    );
}

#[test]
fn files_are_in_natural_order() {
    let directory = Directory::new();
    let place = directory.place("days");
    make(place.as_ref(), 12, OutputFormat::Text, 1, 8);
    let names: Vec<String> = open(&place).files().map(|file| file.name.clone()).collect();
    assert!(names[2].ends_with("day_2") && names[10].ends_with("day_10"), "{names:?}");
    let set = open(&directory.place("days/day_1*"));
    assert_eq!(set.files().count(), 3);
    assert_eq!(open(&format!("file://{place}/day_3")).rows(), 1);
}

#[test]
fn hashed_keys_are_alike_and_tell_fields_apart() {
    let directory = Directory::new();
    let options = Options { keys: Some(Keys::Hashed), ..Options::default() };
    let sums = FORMATS.map(|format| {
        let place = directory.place(&format!("{format:?}"));
        make(place.as_ref(), 200, format, 200, 50);
        let set = DataSet::open(&place, &options).unwrap();
        let columns = read_all(&set);
        assert_ne!(columns.checksum(), read_all(&open(&place)).checksum());
        columns.checksum()
    });
    assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:x?}");
}

/// All batches of a part.
fn part(set: &DataSet, number: u32, parts: u32, seed: u64, settings: ShuffleSettings) -> Vec<Columns> {
    let pieces = Selection::new(set.chunks().to_vec()).part(number, parts, seed);
    let mut shuffle = Shuffle::with_settings(set, pieces.into_iter(), seed, settings);
    let (mut batches, mut batch) = (Vec::new(), Columns::default());
    while shuffle.next_batch(64, &mut batch).unwrap() {
        batches.push(batch.clone());
    }
    batches
}

fn sums(batches: &[Columns]) -> Vec<u64> {
    batches.iter().map(Columns::checksum).collect()
}

/// Rows by themselves, in an order that depends on them alone.
fn sorted(batches: &[Columns]) -> Vec<u64> {
    let mut sums = Vec::new();
    for batch in batches {
        sums.extend((0..batch.rows()).map(|row| rows(batch, row..row + 1).checksum()));
    }
    sums.sort_unstable();
    sums
}

#[test]
fn a_seed_decides_the_order_and_every_row_comes_once() {
    let directory = Directory::new();
    let place = directory.place("set");
    make(place.as_ref(), 2000, OutputFormat::Parquet, 700, 100);
    let set = open(&place);
    let all = sorted(&[read_all(&set)]);
    for (open, rows) in [(1, 1), (4, 30), (8, 8192)] {
        let settings = ShuffleSettings { open, rows };
        let part = |number, seed| part(&set, number, 3, seed, settings);
        let first = part(0, 3);
        assert!(first[..first.len() - 1].iter().all(|batch| batch.rows() == 64));
        assert_eq!(sorted(&[first.clone(), part(1, 3), part(2, 3)].concat()), all);
        assert_eq!(sums(&first), sums(&part(0, 3)));
        let other = part(0, 4);
        assert_ne!(sums(&first), sums(&other));
        assert_eq!(sorted(&[other, part(1, 4), part(2, 4)].concat()), all);
    }
}

/// Row groups of a row, of some and of all rows, and runs of lines: batches are the same to the bit.
#[test]
fn parts_of_an_epoch_are_alike_in_all_formats() {
    let directory = Directory::new();
    let settings = ShuffleSettings { open: 8, rows: 50 };
    let groups = [(OutputFormat::Parquet, 1), (OutputFormat::Parquet, 170), (OutputFormat::Parquet, 3000)];
    let formats = FORMATS.map(|format| (format, 400)).into_iter().chain(groups);
    let batches = formats.map(|(format, group)| {
        let place = directory.place(&format!("{format:?}{group}"));
        make(place.as_ref(), 3000, format, 1100, group);
        (0..4).map(|number| sums(&part(&open(&place), number, 4, 9, settings))).collect::<Vec<_>>()
    });
    let batches: Vec<_> = batches.collect();
    assert!(batches.iter().all(|sums| *sums == batches[0]), "{batches:x?}");
}

/// A set sorted by its label has batches with both labels.
#[test]
fn rows_of_several_chunks_are_mixed() {
    let directory = Directory::new();
    let schema = Schema::criteo();
    let output = Output { group_rows: 50, ..Output::default() };
    let mut writer = Writer::create(&directory.path("set"), &schema, &output).unwrap();
    make(&directory.path("made"), 2000, OutputFormat::Parquet, 2000, 1000);
    let made = read_all(&open(&directory.place("made")));
    let mut order: Vec<usize> = (0..2000).collect();
    order.sort_by(|&a, &b| made.labels[a].total_cmp(&made.labels[b]));
    let mut columns = schema.columns();
    order.into_iter().for_each(|row| columns.push_row(&made, row));
    writer.write(&columns).unwrap();
    writer.finish().unwrap();
    let set = open(&directory.place("set"));
    let settings = ShuffleSettings { open: 8, rows: 50 };
    let batches: Vec<Columns> = (0..3).flat_map(|number| part(&set, number, 3, 1, settings)).collect();
    let mixed = batches.iter().filter(|batch| {
        let clicks: f32 = batch.labels.iter().sum();
        clicks > 0.0 && clicks < batch.rows() as f32
    });
    assert!(mixed.count() > batches.len() * 9 / 10);
}

#[test]
fn a_shuffle_on_disk_keeps_every_row() {
    let directory = Directory::new();
    let place = directory.place("set");
    make(place.as_ref(), 3000, OutputFormat::Zstd, 1000, 100);
    let set = open(&place);
    let shuffled = |name: &str, seed, memory| {
        let to = directory.path(name);
        let mut moved = 0;
        let (form, at) = (Output::default(), to.as_path().into());
        shuffle_on_disk(&set, set.schema(), &at, &form, seed, memory, &mut |rows| moved = rows).unwrap();
        assert_eq!(moved, 6000);
        assert!(!to.join("_parts").exists() && to.join("_SUCCESS").exists());
        read_all(&open(&text(&to)))
    };
    let (first, same) = (shuffled("a", 1, 400_000), shuffled("b", 1, 400_000));
    let (other, whole) = (shuffled("c", 2, 400_000), shuffled("d", 1, 1 << 30));
    assert_eq!(first.checksum(), same.checksum());
    let others = [&other, &whole, &read_all(&set)].map(Columns::checksum);
    assert!(!others.contains(&first.checksum()));
    for columns in [&first, &other, &whole] {
        assert_eq!(sorted(std::slice::from_ref(columns)), sorted(&[read_all(&set)]));
    }
}

/// More than 512 parts are not opened; the memory that the error names suffices.
#[test]
fn a_shuffle_needs_some_memory() {
    let directory = Directory::new();
    let place = directory.place("set");
    make(place.as_ref(), 520, OutputFormat::Parquet, 520, 100);
    let (set, to) = (open(&place), directory.path("to"));
    let shuffle = |memory| {
        let (form, at) = (Output::default(), to.as_path().into());
        shuffle_on_disk(&set, set.schema(), &at, &form, 1, memory, &mut |_| {})
    };
    let error = shuffle(1 << 10).unwrap_err().to_string();
    let expected = "--memory: too little to shuffle 520 rows in at most 512 parts: give at least 4KiB";
    assert_eq!((error.as_str(), to.exists()), (expected, false));
    shuffle(4 << 10).unwrap();
    assert_eq!(open(&text(&to)).rows(), 520);
}

/// A writer that is not finished leaves nothing but a directory that was there before.
#[test]
fn a_set_that_is_not_finished_is_removed() {
    let directory = Directory::new();
    make(&directory.path("made"), 300, OutputFormat::Parquet, 300, 100);
    let rows = read_all(&open(&directory.place("made")));
    std::fs::create_dir(directory.path("there")).unwrap();
    let output = Output { file_rows: 100, group_rows: 50, ..Output::default() };
    for (name, is_left) in [("new", false), ("there", true)] {
        let path = directory.path(name);
        let mut writer = Writer::create(&path, &Schema::criteo(), &output).unwrap();
        writer.write(&rows).unwrap();
        assert!(path.join("part-00002.parquet").exists());
        drop(writer);
        assert_eq!(path.exists(), is_left);
        make(&path, 10, OutputFormat::Parquet, 10, 10);
    }
    let error = Writer::create(&directory.path("new"), &Schema::criteo(), &output).unwrap_err().to_string();
    assert!(error.ends_with("new: the directory is not empty: a data set is written into an empty one"));
    assert_eq!(open(&directory.place("new")).rows(), 10);
}

#[test]
fn a_destination_is_a_directory_or_a_store() {
    let directory = Directory::new();
    let none = Environment::from_iter([]);
    let error = |to: &str| Destination::open(to, &none).unwrap_err().to_string();
    let url = format!("file://{}", directory.place("set"));
    let output = Output::default();
    let to = Destination::open(&url, &none).unwrap();
    let bytes = Make { rows: 50, ..Make::default() }.write_to(&to, &output, &mut |_| {}).unwrap();
    assert_eq!(open(&url).rows(), 50);
    let files = std::fs::read_dir(directory.path("set")).unwrap();
    assert_eq!(bytes, files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>());
    assert!(
        error(&url).ends_with("/set: the directory is not empty: a data set is written into an empty one")
    );
    assert_eq!(
        error("https://host/set"),
        "https://host/set: a server of HTTP can only be read: give a directory, or a URL of s3, gs or az"
    );
    assert!(error("ftp://host/set").contains("the schemes are file, s3"));
    let query = error("s3://ads/set?X-Amz-Signature=geheim");
    assert!(query.contains("a query may hold a secret") && !query.contains("geheim"), "{query}");
}

#[test]
fn an_index_of_text_is_made_once() {
    let directory = Directory::new();
    let place = directory.place("set");
    make(place.as_ref(), 100_000, OutputFormat::Text, 100_000, 1);
    let bytes = open(&place).counts().bytes;
    assert!(bytes > 10_000_000, "{bytes}");
    let again = open(&place);
    assert_eq!(again.counts().bytes, 0);
    // Runs of 16,384 rows.
    let rows: Vec<u64> = again.chunks().iter().map(|chunk| chunk.rows).collect();
    assert_eq!((rows[5], &rows[6..]), (16_384, &[1696][..]));
    let other = read(&again, &again.chunks()[5..], 1000);
    assert_eq!(other.rows(), 16_384 + 1696);
    // A directory for indexes, as for data that must not be written to.
    let cache = directory.path("cache");
    let options = Options { index_directory: Some(cache.clone()), ..Options::default() };
    assert_eq!(DataSet::open(&place, &options).unwrap().counts().bytes, bytes);
    assert_eq!(DataSet::open(&place, &options).unwrap().counts().bytes, 0);
    assert_eq!(std::fs::read_dir(cache).unwrap().count(), 1);
}

#[test]
fn a_fingerprint_follows_the_content() {
    let directory = Directory::new();
    for (name, rows, group) in [("a", 100, 10), ("b", 100, 10), ("c", 101, 10), ("d", 100, 20)] {
        make(&directory.path(name), rows, OutputFormat::Parquet, 100, group);
    }
    let print = |name: &str| open(&directory.place(name)).fingerprint();
    assert_eq!(print("a"), print("b"));
    assert!(print("a") != print("c") && print("a") != print("d"));
    let hashed = Options { keys: Some(Keys::Hashed), ..Options::default() };
    assert_ne!(DataSet::open(&directory.place("a"), &hashed).unwrap().fingerprint(), print("a"));
}
