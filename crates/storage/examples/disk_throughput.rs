//! Measures the throughput of this machine's disk for a log and checkpoints: `disk_throughput <directory> [mebibytes]`.

use std::error::Error;
use std::time::Instant;

use libra_storage::checkpoint::{Checkpoints, Description, PartSettings, TableInfo, export};
use libra_storage::disk::RealDisk;
use libra_storage::wal::{Log, RecordNumber, Settings};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("disk_throughput <directory> [mebibytes]")?;
    let mebibytes: usize = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let root = std::path::Path::new(&directory).join("throughput");
    let rate = |what: &str, bytes: usize, start: Instant| {
        let seconds = start.elapsed().as_secs_f64();
        println!("{what}: {:.0} MB/s ({seconds:.2} s)", bytes as f64 / seconds / 1e6);
    };
    for batch in [4 << 10, 64 << 10, 1 << 20, 8 << 20] {
        let disk = RealDisk::open(root.join(format!("log-{batch}")))?;
        let (mut log, _) = Log::open(disk.clone(), Settings::new(1, 0), RecordNumber::NONE, |_, _| Ok(()))?;
        let (record, syncs) = (vec![7; 4 << 10], ((mebibytes << 20) / batch).min(2000));
        let start = Instant::now();
        for _ in 0..syncs {
            for _ in 0..batch / record.len() {
                log.append(&record)?;
            }
            log.sync()?;
        }
        rate(
            &format!(
                "log, {:5} KiB a sync, {:.2} ms each",
                batch >> 10,
                start.elapsed().as_secs_f64() * 1e3 / syncs as f64
            ),
            syncs * batch,
            start,
        );
        log.close()?;
        let start = Instant::now();
        Log::open(disk, Settings::new(1, 0), RecordNumber::NONE, |_, _| Ok(()))?;
        rate("log, recovery", syncs * batch, start);
    }
    let (width, block) = (16usize, 1000usize);
    let rows = (mebibytes << 20) / (8 + 2 * width * 4) / block * block;
    let bytes = rows * (8 + 2 * width * 4);
    let checkpoints = Checkpoints::new(RealDisk::open(root.join("checkpoints"))?);
    let table =
        TableInfo { name: "item".into(), keys: 0..1 << 40, width: 16, state: 16, rule: "adagrad".into() };
    let description = Description {
        number: 1,
        job: 1,
        seed: 1,
        shards: 1,
        shard: 0,
        covers: RecordNumber::NONE,
        steps: [].into(),
        tables: vec![table],
        position: None,
    };
    let numbers = vec![0.5f32; width * block];
    let (start, mut longest) = (Instant::now(), 0.0f64);
    let mut writer = checkpoints.begin(description, None, PartSettings::default())?;
    for first in (0..rows as u64).step_by(block) {
        // Keys in no order, as a hash leaves them.
        let keys: Vec<u64> =
            (first..first + block as u64).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24).collect();
        let piece = Instant::now();
        writer.write_rows(0, &keys, &numbers, &numbers)?;
        longest = longest.max(piece.elapsed().as_secs_f64());
    }
    writer.finish(&[])?;
    rate(&format!("checkpoint, {rows} rows, longest call {:.0} ms", longest * 1e3), bytes, start);
    let start = Instant::now();
    checkpoints.verify(1)?;
    rate("checkpoint, verify", bytes, start);
    let checkpoint = checkpoints.open(1)?;
    let (start, mut read) = (Instant::now(), 0);
    let mut blocks = checkpoint.blocks(10_000);
    while blocks.next_block()?.is_some() {
        read += 1;
    }
    rate(&format!("checkpoint, {read} blocks"), bytes, start);
    let start = Instant::now();
    export(&[checkpoint], &RealDisk::open(root.join("exported"))?, 256 << 20)?;
    rate("checkpoint, export", bytes, start);
    std::fs::remove_dir_all(root)?;
    Ok(())
}
