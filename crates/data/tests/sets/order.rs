//! Order of rows, whatever the format, the row groups and the order of the set.

use libra_data::{
    ColumnKind, Columns, DataSet, Description, Options, Output, OutputFormat, Schema, Selection, Shuffle,
    ShuffleSettings, Writer,
};

use crate::support::{Cells, Directory, make, open, parquet};

/// Batches of all parts of an epoch, each given to `each`.
fn read_epoch(
    set: &DataSet,
    parts: u32,
    settings: ShuffleSettings,
    rows: usize,
    mut each: impl FnMut(u32, &Columns),
) {
    let selection = Selection::new(set.chunks().to_vec());
    let mut batch = Columns::default();
    for part in 0..parts {
        let pieces = selection.part(part, parts, 9).into_iter();
        let mut shuffle = Shuffle::with_settings(set, pieces, part.into(), settings);
        while shuffle.next_batch(rows, &mut batch).unwrap() {
            each(part, &batch);
        }
    }
}

#[test]
fn the_first_thousand_batches_of_all_formats_are_equal() {
    let directory = Directory::new();
    let sets = [
        (OutputFormat::Text, 1),
        (OutputFormat::Gzip, 1),
        (OutputFormat::Zstd, 1),
        (OutputFormat::Parquet, 700),
        (OutputFormat::Parquet, 10_000),
    ];
    let checksums = sets.map(|(format, group_rows)| {
        let place = directory.place(&format!("{format:?}{group_rows}"));
        make(place.as_ref(), 8000, format, 3000, group_rows);
        let mut sums = Vec::new();
        read_epoch(&open(&place), 4, ShuffleSettings::default(), 8, |_, batch| sums.push(batch.checksum()));
        assert_eq!(sums.len(), 1000);
        sums
    });
    assert!(checksums.iter().all(|sums| *sums == checksums[0]));
    let mut distinct = checksums[0].clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 1000);
}

/// Groups of one row, of some and of very many rows in one file are no reason for parts of unequal size.
#[test]
fn uneven_row_groups_make_even_parts() {
    let directory = Directory::new();
    let sizes = [&[1; 300][..], &[15_000], &[1; 7], &[500, 3, 2000], &[1; 90]].concat();
    let mut number = 0;
    let groups = sizes.iter().map(|&rows| {
        let ids: Vec<i64> = (number..number + rows).collect();
        number += rows;
        let labels = Cells::Int32(vec![0; ids.len()]);
        vec![(labels, None, None), (Cells::Int64(ids), None, None)]
    });
    let schema = "message m { required int32 label; required int64 user; }";
    parquet(&directory.path("a.parquet"), schema, groups.collect());
    let description = Description::parse("label = \"label\"\ncategories = [\"user\"]").unwrap();
    let options = Options { description: Some(description), ..Options::default() };
    let set = DataSet::open(&directory.place("a.parquet"), &options).unwrap();
    let rows = u64::try_from(number).unwrap();
    assert_eq!((set.rows(), set.chunks().len()), (rows, sizes.len()));
    let (mut ids, mut of_part) = (Vec::new(), [0; 12]);
    read_epoch(&set, 12, ShuffleSettings::default(), 64, |part, batch| {
        ids.extend_from_slice(&batch.categories[0].ids);
        of_part[part as usize] += batch.rows();
    });
    let (least, most) = (of_part.iter().min().unwrap(), of_part.iter().max().unwrap());
    assert!(most - least <= 16, "{of_part:?}");
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..rows), "each row comes once");
}

/// In a set that is sorted by time, each batch has the times of the whole, in the shares of the whole, though a fifth of a piece is in
/// memory.
#[test]
fn batches_of_a_set_sorted_by_time_span_it() {
    const ROWS: i64 = 16_000;
    let schema = Schema {
        description: Description::parse("label = \"y\"\ntime = \"at\"\ncategories = [\"user\"]").unwrap(),
        numbers: Vec::new(),
        categories: vec![ColumnKind::Id],
    };
    let mut columns = schema.columns();
    for time in 0..ROWS {
        columns.labels.push(0.0);
        columns.times.push(time);
        let users = &mut columns.categories[0];
        users.ids.push(time.cast_unsigned());
        users.offsets.push(u32::try_from(users.ids.len()).unwrap());
    }
    let directory = Directory::new();
    let output = Output { group_rows: 900, file_rows: 5000, ..Output::default() };
    let mut writer = Writer::create(&directory.path("set"), &schema, &output).unwrap();
    writer.write(&columns).unwrap();
    writer.finish().unwrap();
    let mut count = 0;
    let settings = ShuffleSettings { open: 16, rows: 50 };
    read_epoch(&open(&directory.place("set")), 4, settings, 200, |part, batch| {
        let mut rows = [0; 8];
        batch.times.iter().for_each(|time| rows[usize::try_from(time * 8 / ROWS).unwrap()] += 1);
        // 25 each on average, with a standard deviation of less than 5.
        assert!(rows.iter().all(|rows| (5..=50).contains(rows)), "part {part}: {rows:?}");
        count += 1;
    });
    assert_eq!(count, 80);
}
