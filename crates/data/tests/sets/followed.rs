//! Files of a directory that is followed.

use std::fs;

use libra_data::{Followed, Options};

use crate::support::{Cells, Column, Directory, parquet};

/// Writes two rows with these types of the columns `shop` and `user`.
fn write(directory: &Directory, name: &str, shop: (&str, Column), user: (&str, Column)) {
    let (shop_type, user_type) = (shop.0.replace("NAME", "shop"), user.0.replace("NAME", "user"));
    let schema = format!("message m {{ required int32 label; optional {shop_type}; optional {user_type}; }}");
    let columns = vec![(Cells::Int32(vec![0, 1]), None, None), shop.1, user.1];
    parquet(&directory.path(&format!("set/{name}.parquet")), &schema, vec![columns]);
}

fn numbers() -> (&'static str, Column) {
    ("int64 NAME", (Cells::Int64(vec![7, 8]), Some(vec![1, 1]), None))
}

fn texts() -> (&'static str, Column) {
    ("binary NAME (STRING)", (Cells::Text(vec!["7", "8"]), Some(vec![1, 1]), None))
}

fn nulls() -> (&'static str, Column) {
    ("int32 NAME (UNKNOWN)", (Cells::Int32(vec![]), Some(vec![0, 0]), None))
}

/// The same id would have two keys.
#[test]
fn a_followed_file_with_other_types_is_refused() {
    let directory = Directory::new();
    fs::create_dir(directory.path("set")).unwrap();
    let description = "label = \"label\"\ncategories = [\"shop\", \"user\"]";
    fs::write(directory.path("set/dataset.toml"), description).unwrap();
    write(&directory, "a", nulls(), numbers());
    let followed = Followed::open(&directory.place("set"), &Options::default()).unwrap();
    assert_eq!(followed.file("a.parquet").unwrap().rows(), 2);
    write(&directory, "b", texts(), texts());
    let error = |name: &str| followed.file(name).unwrap_err().to_string();
    let other = |name: &str, column: &str, found: &str, expected: &str, first: &str| {
        let (file, first) = (directory.place(name), directory.place(first));
        let types = format!("the column has the type {found}, but {expected} in {first}");
        format!("{file}, column {column}: {types}: give it one type in all files")
    };
    assert_eq!(error("b.parquet"), other("set/b.parquet", "user", "text", "INT64", "set/a.parquet"));
    // The file that was refused is replaced by a good one, and others are not compared with it.
    write(&directory, "b", numbers(), numbers());
    assert_eq!(followed.file("b.parquet").unwrap().rows(), 2);
    write(&directory, "c", texts(), nulls());
    assert_eq!(error("c.parquet"), other("set/c.parquet", "shop", "text", "INT64", "set/b.parquet"));
    write(&directory, "c", nulls(), nulls());
    assert_eq!(followed.file("c.parquet").unwrap().rows(), 2);
}
