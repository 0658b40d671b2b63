//! Python reads checkpoints without us: `json`, and the `safetensors` package.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use libra_storage::checkpoint::{Checkpoints, Description, PartSettings, TableInfo, export};
use libra_storage::disk::RealDisk;
use libra_storage::wal::RecordNumber;

/// Prints every row that the base and the increments make: table, key, and the bits of values and state.
const SCRIPT: &str = r#"
import json, pathlib, sys, zlib
import numpy
from safetensors import safe_open
from safetensors.numpy import load_file

root, exported = map(pathlib.Path, sys.argv[1:3])
directory, chain = root / "checkpoint-2", []
while True:
    manifest = json.loads((directory / "manifest.json").read_text())
    chain.insert(0, (directory, manifest))
    if manifest["base"] is None:
        break
    directory = root / f"checkpoint-{manifest['base']['number']}"

bits = lambda row: row.view(numpy.uint32).tolist()
rows = {}
for directory, manifest in chain:
    tables = manifest["tables"]
    for kind in ("removed", "rows"):
        for file in manifest["files"]:
            path = directory / file["name"]
            assert path.stat().st_size == file["bytes"], path
            if file["content"] == "state" or kind not in file["content"]:
                continue
            content = file["content"][kind]
            table, tensors = tables[content["table"]], load_file(path)
            with safe_open(path, "numpy") as opened:
                assert opened.metadata()["table"] == table["name"], opened.metadata()
            keys = tensors["keys"]
            assert keys.dtype == numpy.uint64 and keys.shape == (content["rows"],)
            if kind == "removed":
                for key in keys.tolist():
                    rows.pop((table["name"], key), None)
                continue
            values, state = tensors["values"], tensors["state"]
            assert values.dtype == state.dtype == numpy.float32
            assert values.shape == (len(keys), table["width"]), values.shape
            assert state.shape == (len(keys), table["state"]), state.shape
            for key, value, kept in zip(keys.tolist(), values, state):
                rows[table["name"], key] = bits(value) + bits(kept)

for position, table in enumerate(tables):
    tensors = load_file(exported / f"{position}-{table['name']}.safetensors")
    keys = tensors["keys"].tolist()
    assert keys == sorted(key for name, key in rows if name == table["name"]), keys
    for key, value, kept in zip(keys, tensors["values"], tensors["state"]):
        assert rows[table["name"], key] == bits(value) + bits(kept), key

print("rule", tables[0]["rule"], "steps", manifest["steps"], "seed", manifest["seed"])
for (table, key), numbers in sorted(rows.items()):
    print(table, key, *numbers)
"#;

fn has_packages() -> bool {
    let import = Command::new("python3").args(["-c", "import numpy, safetensors"]).output();
    import.is_ok_and(|output| output.status.success())
}

/// The bits of a number of a row: among them zeros of both signs, infinities, and NaNs.
fn number(checkpoint: u32, key: u64, index: u32) -> f32 {
    const SPECIAL: [u32; 5] = [0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7fc0_1234, 0x0000_0001];
    let plain = (checkpoint as f32).mul_add(0.1, (key % 1000) as f32 / 3.0) + index as f32;
    SPECIAL.get((key % 7) as usize).filter(|_| index == 1).map_or(plain, |bits| f32::from_bits(*bits))
}

#[test]
fn python_reads_the_same_bits() {
    if !has_packages() {
        // Past the capture of the test runner, so that it is seen although the test passes.
        let skipped = "SKIPPED: python3 cannot import numpy and safetensors: pip install numpy safetensors\n";
        std::io::stderr().write_all(skipped.as_bytes()).unwrap();
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (root, exported) = (directory.path().join("shard"), directory.path().join("exported"));
    let checkpoints = Checkpoints::new(RealDisk::open(&root).unwrap());
    let table = |name: &str, keys, width, state| TableInfo {
        name: name.into(),
        keys,
        width,
        state,
        rule: serde_json::json!({ "adagrad": { "rate": 0.1 } }),
    };
    let tables = vec![table("user", 0..1000, 3, 3), table("item", 1000..u64::MAX, 2, 0)];
    let mut expected = std::collections::BTreeMap::new();
    for (checkpoint, keys) in
        [(1u32, (0..50).chain([u64::MAX - 1, 1 << 63, 1005])), (2, (40..60).chain([1006, 1007, 1008]))]
    {
        let description = Description {
            number: checkpoint.into(),
            job: 1,
            seed: u64::MAX,
            shards: 1,
            shard: 0,
            covers: RecordNumber::NONE,
            steps: [("pushes".into(), 17)].into(),
            tables: tables.clone(),
            position: None,
        };
        let parts = PartSettings { rows_max: 16, ..PartSettings::default() };
        let mut writer = checkpoints.begin(description, (checkpoint == 2).then_some(1), parts).unwrap();
        for key in keys {
            let position = usize::from(key >= 1000);
            let row: Vec<f32> = (0..tables[position].width + tables[position].state)
                .map(|index| number(checkpoint, key, index))
                .collect();
            let (values, state) = row.split_at(tables[position].width as usize);
            writer.write_rows(position, &[key], values, state).unwrap();
            let bits: Vec<u32> = row.iter().map(|value| value.to_bits()).collect();
            expected.insert((tables[position].name.clone(), key), bits);
        }
        if checkpoint == 2 {
            writer.remove_rows(0, &[3]).unwrap();
            expected.remove(&("user".to_owned(), 3));
        }
        writer.finish(b"opaque \xff").unwrap();
    }
    export(&[checkpoints.open(2).unwrap()], &RealDisk::open(&exported).unwrap(), 1000).unwrap();

    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(&root)
        .arg(&exported)
        .output()
        .expect("it ran before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut text = format!("rule {{'adagrad': {{'rate': 0.1}}}} steps {{'pushes': 17}} seed {}\n", u64::MAX);
    for ((table, key), bits) in expected {
        let bits: Vec<_> = bits.iter().map(u32::to_string).collect();
        writeln!(text, "{table} {key} {}", bits.join(" ")).unwrap();
    }
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
}
