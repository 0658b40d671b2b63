//! Recordings of pushes.

use std::path::Path;

use libra_client::TableShape;
use libra_fuzz::{Outcome, Target};
use libra_models::record::{Head, PushReader, PushWriter, RecordError};

/// Bytes of the head before its text, and of the head of a push before its checksum.
const HEAD: usize = 16;
const PUSH: usize = 16;

fn written() -> Vec<u8> {
    let table = |name: &str, keys, width| TableShape { name: name.into(), keys, width, hot: true };
    let head = Head {
        worker: 0,
        workers: 1,
        model: "mine".into(),
        data: "none".into(),
        batch: 1,
        tables: vec![table("narrow", 0..100, 1), table("wide", 100..200, 5)],
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker-0.pushes");
    let mut writer = PushWriter::create(&path, &head).unwrap();
    writer.write(&[7, 3], &[0.5, 0.25]).unwrap();
    writer.write(&[], &[]).unwrap();
    writer.write(&[150, 1, 199], &[1.0; 11]).unwrap();
    std::fs::read(&path).unwrap()
}

/// Makes the checksums right, as far as lengths lead to them.
fn seal(bytes: &mut [u8]) {
    let length = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()) as usize)
    };
    let put = |bytes: &mut [u8], from: usize, at: usize| {
        let sum = bytes.get(from..at).map(crc32c::crc32c)?;
        bytes.get_mut(at..at + 4)?.copy_from_slice(&sum.to_le_bytes());
        Some(at + 4)
    };
    let Some(mut at) = length(bytes, 12).and_then(|text| put(bytes, 0, HEAD + text)) else { return };
    while let (Some(keys), Some(values)) = (length(bytes, at + 8), length(bytes, at + 12))
        && let Some(body) = put(bytes, at, at + PUSH)
        && let Some(end) = put(bytes, body, body + 8 * keys + 4 * values)
    {
        at = end;
    }
}

pub(crate) fn read(bytes: &[u8]) -> Outcome {
    let failed = |error: RecordError| match error {
        RecordError::Damaged { at, what, .. } => {
            assert!(at <= bytes.len() as u64);
            what.to_owned()
        }
        RecordError::Cut { at, .. } => {
            assert_eq!(at, bytes.len() as u64);
            "cut".to_owned()
        }
        RecordError::NoRecording { .. } => "no recording".to_owned(),
        RecordError::Version { .. } => "version".to_owned(),
        other => panic!("memory can be read: {other}"),
    };
    let mut reader = match PushReader::of(bytes, bytes.len() as u64, Path::new("worker-0.pushes")) {
        Ok(reader) => reader,
        Err(error) => return Outcome::refused(failed(error)),
    };
    let tables = reader.head().tables.clone();
    let width =
        |key: &u64| tables.iter().find(|table| table.keys.contains(key)).map(|table| table.width as usize);
    let mut pushes = 0;
    loop {
        match reader.next_push() {
            Ok(Some(push)) => {
                assert_eq!(push.step, pushes);
                assert_eq!(push.keys.iter().map(width).sum::<Option<usize>>(), Some(push.gradients.len()));
                pushes += 1;
            }
            Ok(None) => return Outcome::beyond("ok"),
            Err(error) => return Outcome::beyond(failed(error)),
        }
    }
}

pub(crate) fn target() -> Target {
    Target::new("recording", vec![written()]).sealed(seal)
}

#[test]
fn a_sealed_recording_is_as_it_was_written() {
    let mut sealed = written();
    sealed[HEAD + 1] ^= 1;
    seal(&mut sealed);
    sealed[HEAD + 1] ^= 1;
    assert_ne!(sealed, written());
    seal(&mut sealed);
    assert_eq!(sealed, written());
}
