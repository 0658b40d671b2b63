//! Columns of other writers: types, nulls, lists, weights and times; and properties of all shapes.

use libra_data::{ColumnKind, Columns, DataSet, Description, Options, Output, Schema, Writer};
use proptest::prelude::*;

use crate::support::{Cells, Directory, open, parquet, read, read_all};

fn options(description: &str) -> Options {
    Options { description: Some(Description::parse(description).unwrap()), ..Options::default() }
}

#[test]
fn types_become_their_meaning() {
    let directory = Directory::new();
    let place = directory.place("a.parquet");
    let schema = "message m {
        required float label; required int32 small (INTEGER(32, false)); optional int64 large (INTEGER(64, false));
        optional binary name (STRING); required group at { optional int64 time; } required double weight;
        optional binary hex (STRING); }";
    let columns = vec![
        (Cells::Float(vec![1.0, 0.0]), None, None),
        (Cells::Int32(vec![-1, 3]), None, None),
        (Cells::Int64(vec![-1]), Some(vec![1, 0]), None),
        (Cells::Text(vec!["ab", ""]), Some(vec![1, 1]), None),
        (Cells::Int64(vec![5, -6]), Some(vec![1, 1]), None),
        (Cells::Double(vec![0.5, 2.0]), None, None),
        (Cells::Text(vec!["00ff"]), Some(vec![0, 1]), None),
    ];
    parquet(place.as_ref(), schema, vec![columns]);
    let description = "label = \"label\"\nweight = \"weight\"\ntime = \"at.time\"\nnumbers = [\"small\"]
        categories = [\"large\", \"name\", \"small2\", { name = \"hex\", text = \"hex\" }]"
        .replace("\"small2\", ", "");
    let set = DataSet::open(&place, &options(&description)).unwrap();
    let columns = read_all(&set);
    assert_eq!(
        (columns.labels, columns.weights, columns.times),
        (vec![1.0, 0.0], vec![0.5, 2.0], vec![5, -6])
    );
    assert_eq!(columns.numbers[0], [f64::from(u32::MAX), 3.0]);
    assert_eq!((columns.categories[0].row(0), columns.categories[0].row(1)), (&[u64::MAX][..], &[][..]));
    assert_eq!((columns.categories[2].row(0), columns.categories[2].row(1)), (&[][..], &[255][..]));
    // An empty text is a value, and no missing one.
    assert_eq!(columns.categories[1].ids.len(), 2);
    assert_eq!(set.schema().numbers, [ColumnKind::Integer]);
}

/// Lists as current writers have them, and as older ones did.
#[test]
fn lists_of_all_writers_are_read() {
    let directory = Directory::new();
    let rows: [&[u64]; 4] = [&[1], &[], &[2, 3], &[]];
    let three = "message m { required int32 label; optional group tags (LIST) { repeated group list { optional int64 element; } } }";
    let two = "message m { required int32 label; optional group tags (LIST) { repeated int64 array; } }";
    let plain = "message m { required int32 label; repeated int64 tags; }";
    // Levels of a null list and a null element, if the schema has them.
    for (schema, there, empty, null) in [(three, 3, 1, 0), (two, 2, 1, 0), (plain, 1, 0, 0)] {
        let place = directory.place("a.parquet");
        let def = vec![there, empty, there, there, null];
        let tags = (Cells::Int64(vec![1, 2, 3]), Some(def), Some(vec![0, 0, 0, 1, 0]));
        parquet(place.as_ref(), schema, vec![vec![(Cells::Int32(vec![0; 4]), None, None), tags]]);
        let set = DataSet::open(&place, &options("label = \"label\"\ncategories = [\"tags\"]")).unwrap();
        assert_eq!(set.schema().categories, [ColumnKind::List]);
        for step in [1, 3, 100] {
            let ids = &read(&set, set.chunks(), step).categories[0];
            assert_eq!([0, 1, 2, 3].map(|row| ids.row(row)), rows, "{schema}");
        }
    }
}

/// A row of a set with lists, weights and times.
type AnyRow = (bool, f32, i64, Option<f64>, Vec<u64>, Option<u64>);

fn any_rows() -> impl Strategy<Value = Vec<AnyRow>> {
    let number = prop::option::of(-1e9f64..1e9);
    let list = prop::collection::vec(any::<u64>(), 0..4);
    let row = (any::<bool>(), 0f32..10.0, any::<i64>(), number, list, prop::option::of(any::<u64>()));
    prop::collection::vec(row, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(rows in any_rows(), group in 1usize..50, file in 1u64..100, step in 1usize..60) {
        let description = "label = \"y\"\nweight = \"w\"\ntime = \"t\"\nnumbers = [\"x\"]\ncategories = [\"many\", \"one\"]";
        let schema = Schema {
            description: Description::parse(description).unwrap(),
            numbers: vec![ColumnKind::Float],
            categories: vec![ColumnKind::List, ColumnKind::Id],
        };
        let mut columns: Columns = schema.columns();
        for (label, weight, time, number, many, one) in rows {
            columns.labels.push(f32::from(u8::from(label)));
            columns.weights.push(weight);
            columns.times.push(time);
            columns.numbers[0].push(number.unwrap_or(f64::NAN));
            for (category, ids) in [many, one.into_iter().collect()].into_iter().enumerate() {
                let into = &mut columns.categories[category];
                into.ids.extend(ids);
                into.offsets.push(u32::try_from(into.ids.len()).unwrap());
            }
        }
        let directory = Directory::new();
        let output = Output { file_rows: file, group_rows: group, ..Output::default() };
        let mut writer = Writer::create(&directory.path("set"), &schema, &output).unwrap();
        writer.write(&columns).unwrap();
        writer.finish().unwrap();
        let set = open(&directory.place("set"));
        prop_assert_eq!(set.rows(), columns.rows() as u64);
        prop_assert_eq!(read(&set, set.chunks(), step).checksum(), columns.checksum());
    }
}
