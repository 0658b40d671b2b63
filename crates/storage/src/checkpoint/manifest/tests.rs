use super::*;

pub(crate) fn manifest() -> Manifest {
    let table = |name: &str, keys, rule| TableInfo { name: name.into(), keys, width: 3, state: 1, rule };
    let description = Description {
        number: 9,
        job: u64::MAX,
        seed: 1 << 60,
        shards: 4,
        shard: 3,
        covers: RecordNumber(77),
        steps: BTreeMap::from([("step".into(), 12)]),
        tables: vec![
            table("user", 0..10, serde_json::json!({ "sgd": { "rate": 0.1 } })),
            table("item", 10..u64::MAX, serde_json::json!(["any", 1e-300])),
        ],
        position: Some(serde_json::json!({ "phase": 3 })),
    };
    let bytes = Layout::of_rows("item", 5, 3, 1).unwrap().bytes();
    let file = |name: &str, content, bytes| FileInfo { name: name.into(), content, bytes, checksum: 0xab };
    Manifest {
        version: VERSION,
        description,
        base: Some(Base { number: 8, checksum: 5 }),
        files: vec![
            file("a", Content::Rows { table: 1, rows: 5 }, bytes),
            file("state.bin", Content::State, 3),
        ],
    }
}

fn fault(change: impl FnOnce(&mut Manifest)) -> String {
    let mut changed = manifest();
    change(&mut changed);
    match Manifest::parse(&changed.to_bytes().0) {
        Err(ParseError::Fault(fault)) => fault.to_string(),
        Err(ParseError::Version(version)) => format!("version {version}"),
        Ok(_) => panic!("not noticed"),
    }
}

#[test]
fn it_comes_back_as_it_was_written() {
    let (bytes, checksum) = manifest().to_bytes();
    let Ok((parsed, same)) = Manifest::parse(&bytes) else { panic!("it is sound") };
    assert_eq!((parsed, same), (manifest(), checksum));
    let json: serde_json::Value = serde_json::from_slice(&bytes).expect("others read it as JSON");
    assert_eq!(json["tables"][1]["name"], "item");
    assert_eq!(json["checksum"], format!("{checksum:08x}"));
}

#[test]
fn every_bit_counts() {
    let (bytes, _) = manifest().to_bytes();
    for at in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        assert!(Manifest::parse(&flipped).is_err(), "bit {at}");
    }
    for length in 0..bytes.len() {
        assert!(Manifest::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn fields_that_cannot_be_are_named() {
    let wrong = [
        (fault(|manifest| manifest.description.shard = 4), "shard"),
        (fault(|manifest| manifest.description.tables[1].name = "user".into()), "tables[1].name"),
        (fault(|manifest| manifest.description.tables[0].width = 0), "tables[0].width"),
        (fault(|manifest| manifest.description.tables[0].keys = 3..3), "tables[0].keys"),
        (fault(|manifest| manifest.base = Some(Base { number: 9, checksum: 5 })), "base.number"),
        (fault(|manifest| manifest.files[0].name = "../a".into()), "files[0].name"),
        (fault(|manifest| manifest.files[0].name = "state.bin".into()), "files[1].name"),
        (fault(|manifest| manifest.files[0].bytes += 1), "files[0].bytes"),
        (
            fault(|manifest| manifest.files[0].content = Content::Rows { table: 2, rows: 5 }),
            "files[0].content",
        ),
        (
            fault(|manifest| manifest.files[0].content = Content::Rows { table: 1, rows: u64::MAX }),
            "files[0].bytes",
        ),
        (fault(|manifest| manifest.files.truncate(1)), "files"),
        (fault(|manifest| manifest.version = 2), "version 2"),
    ];
    for (message, named) in wrong {
        assert!(message.contains(named), "{named}: {message}");
    }
}
