//! Commits of checkpoints at a URL: any bytes in place of one.

use libra_fuzz::{Outcome, Target};
use libra_storage::archive::{Commit, CommittedFile};
use libra_storage::checkpoint::{CheckpointError, Fault, TableInfo};

use crate::checkpoint::seal;

const NUMBER: u64 = 2;

fn written() -> Vec<u8> {
    let file = |name: &str| CommittedFile { name: name.into(), bytes: 300, checksum: 0xab };
    let commit = Commit {
        version: Commit::VERSION,
        number: NUMBER,
        job: 1,
        seed: 1,
        shards: 2,
        tables: vec![TableInfo { name: "t".into(), keys: 0..50, width: 2, state: 1, rule: 1.into() }],
        chain: [1, NUMBER].into(),
        files: vec![file("shard-0/checkpoint-1/manifest.json"), file("shard-1/checkpoint-2/state.bin")],
    };
    commit.to_bytes()
}

pub(crate) fn target() -> Target {
    Target::new("commit", vec![written()]).sealed(seal)
}

pub(crate) fn read(bytes: &[u8]) -> Outcome {
    match Commit::read(bytes, NUMBER, "job-2.json".to_owned()) {
        Ok(commit) => {
            // Names are those of files below the URL.
            assert!(
                commit.files.iter().all(|file| file.name.starts_with("shard-") && !file.name.contains("/."))
            );
            assert!(commit.number == NUMBER && commit.shards > 0);
            Outcome::beyond("ok")
        }
        Err(CheckpointError::Damaged { fault, .. }) => {
            let is_first = matches!(fault, Fault::Checksum { .. } | Fault::Header { .. });
            let name = match fault {
                Fault::Field { field, .. } => format!("field {field}"),
                fault => format!("{fault:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
            };
            if is_first { Outcome::refused(name) } else { Outcome::beyond(name) }
        }
        Err(error) => Outcome::beyond(format!("{error:?}").split([' ', '(']).next().unwrap_or_default()),
    }
}
