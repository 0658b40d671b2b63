//! Measures how fast a data set is read on one thread: decompression and decoding alone (of Parquet), the rows in the order of the files, and an epoch in
//! parts as a worker reads it; by wall time, and by processor time if the machine has other work. Then the number of times that row groups were opened and bytes
//! were read, and the most memory that it took.
//!
//! ```sh
//! cargo run --release --package libra-data --example reading -- PLACE [PARTS]
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::time::Instant;

use libra_data::{Columns, DataSet, Keys, Options, Selection, Shuffle};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// Rows of a batch.
const BATCH: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().ok_or("PLACE is missing: a path or URL of a data set")?;
    let options = Options { keys: Some(Keys::Hashed), ..Options::default() };
    let opening = Instant::now();
    let set = DataSet::open(&place, &options)?;
    println!("{} rows in {} chunks, opened in {:.2?}", set.rows(), set.chunks().len(), opening.elapsed());

    let paths = || set.files().map(|file| file.name.as_str());
    if paths().all(|path| path.ends_with(".parquet") && !path.contains("://")) {
        let started = Started::now();
        for path in paths() {
            decode(path)?;
        }
        print("decompress and decode alone", &set, &started, set.rows());
    }

    let (started, mut columns) = (Started::now(), set.schema().columns());
    for chunk in set.chunks() {
        let mut reader = set.read(chunk)?;
        columns.clear();
        while reader.read(BATCH, &mut columns)? > 0 {
            columns.clear();
        }
    }
    print("in the order of the files", &set, &started, set.rows());

    let set = set.counted_apart();
    let selection = Selection::new(set.chunks().to_vec());
    let most = u32::try_from(selection.rows() / selection.part_rows())?.max(8);
    let parts: u32 = arguments.next().map_or(Ok(most), |parts| parts.parse())?;
    let (started, mut batch, mut rows) = (Started::now(), Columns::default(), 0);
    let mut shuffle = Shuffle::new(&set, Vec::new().into_iter(), 0);
    for number in 0..parts {
        shuffle.go_on(selection.part(number, parts, 1).into_iter(), number.into());
        while shuffle.next_batch(BATCH, &mut batch)? {
            rows += batch.rows() as u64;
        }
    }
    print(&format!("an epoch in {parts} parts"), &set, &started, rows);
    let (counts, bytes) = (set.counts(), set.files().map(|file| file.bytes).sum::<u64>());
    let groups = counts.groups as f64 / set.chunks().len() as f64;
    println!(
        "{groups:.2} openings of a row group, {:.2} reads of a byte",
        counts.bytes as f64 / bytes as f64
    );
    let status = fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown");
    println!("memory at most: {}", most.trim());
    Ok(())
}

/// Wall time, and nanoseconds of this thread on a processor.
struct Started(Instant, f64);

impl Started {
    fn now() -> Self {
        Self(Instant::now(), processor_seconds())
    }
}

fn processor_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn print(what: &str, set: &DataSet, started: &Started, rows: u64) {
    let (wall, processor) = (started.0.elapsed().as_secs_f64(), processor_seconds() - started.1);
    assert_eq!(rows, set.rows());
    let each = |seconds: f64| seconds * 1e6 / rows as f64;
    println!(
        "{what}: {:.0} rows/s; {:.2} us a row, {:.2} us of processor",
        rows as f64 / wall,
        each(wall),
        each(processor)
    );
}

/// Decodes all columns of a file, and drops the values.
fn decode(path: &str) -> Result<(), Box<dyn Error>> {
    fn all<T: DataType>(mut reader: ColumnReaderImpl<T>) -> Result<(), Box<dyn Error>> {
        let (mut def, mut rep, mut values) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            def.clear();
            rep.clear();
            values.clear();
            let (records, ..) =
                reader.read_records(4 * BATCH, Some(&mut def), Some(&mut rep), &mut values)?;
            if records == 0 {
                return Ok(());
            }
        }
    }
    let file = SerializedFileReader::new(File::open(path)?)?;
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group)?;
        for column in 0..group.num_columns() {
            match group.get_column_reader(column)? {
                ColumnReader::BoolColumnReader(reader) => all(reader),
                ColumnReader::Int32ColumnReader(reader) => all(reader),
                ColumnReader::Int64ColumnReader(reader) => all(reader),
                ColumnReader::Int96ColumnReader(reader) => all(reader),
                ColumnReader::FloatColumnReader(reader) => all(reader),
                ColumnReader::DoubleColumnReader(reader) => all(reader),
                ColumnReader::ByteArrayColumnReader(reader) => all(reader),
                ColumnReader::FixedLenByteArrayColumnReader(reader) => all(reader),
            }?;
        }
    }
    Ok(())
}
