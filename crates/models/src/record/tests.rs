use std::fs;
use std::io::Cursor;

use proptest::prelude::*;

use super::*;

fn head() -> Head {
    let table = |name: &str, keys, width| TableShape { name: name.into(), keys, width, hot: true };
    let tables = vec![table("user", 0..100, 3), table("layer", 1 << 40..(1 << 40) + 2, 7)];
    Head { worker: 1, workers: 4, model: "mine, 3 wide".into(), data: "none".into(), batch: 64, tables }
}

/// Writes pushes to a file that is read back as bytes.
fn written(pushes: &[(Vec<u64>, Vec<f32>)]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(file_name(1));
    let mut writer = PushWriter::create(&path, &head()).unwrap();
    for (keys, gradients) in pushes {
        writer.write(keys, gradients).unwrap();
    }
    fs::read(path).unwrap()
}

/// All pushes until the end or an error.
fn read(bytes: &[u8]) -> (Vec<RecordedPush>, Option<RecordError>) {
    let mut pushes = Vec::new();
    match PushReader::of(Cursor::new(bytes), bytes.len() as u64, Path::new("a-file")) {
        Ok(mut reader) => loop {
            match reader.next_push() {
                Ok(Some(push)) => pushes.push(push),
                Ok(None) => return (pushes, None),
                Err(error) => return (pushes, Some(error)),
            }
        },
        Err(error) => (pushes, Some(error)),
    }
}

fn push() -> impl Strategy<Value = (Vec<u64>, Vec<f32>)> {
    let key = prop_oneof![0..100_u64, 1 << 40..(1_u64 << 40) + 2];
    prop::collection::vec(key, 0..12).prop_flat_map(|keys| {
        let values = keys.iter().map(|key| if *key < 100 { 3 } else { 7 }).sum::<usize>();
        (Just(keys), prop::collection::vec(any::<f32>(), values..=values))
    })
}

proptest! {
    /// All pushes that were written are read, to the bit; of a file that was cut anywhere, the whole ones.
    #[test]
    fn pushes_are_read_as_they_were_written(pushes in prop::collection::vec(push(), 0..6), cut in any::<prop::sample::Index>()) {
        let bytes = written(&pushes);
        let (found, error) = read(&bytes);
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(found.len(), pushes.len());
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for (step, (found, (keys, gradients))) in found.iter().zip(&pushes).enumerate() {
            prop_assert_eq!((found.step, &found.keys), (step as u64, keys));
            prop_assert_eq!(bits(&found.gradients), bits(gradients));
        }
        let length = cut.index(bytes.len());
        let (whole, error) = read(&bytes[..length]);
        prop_assert!(whole.iter().zip(&found).all(|(one, other)| (one.step, &one.keys) == (other.step, &other.keys)));
        match error {
            Some(RecordError::Cut { at, pushes, .. }) => prop_assert_eq!((at, pushes), (length as u64, whole.len() as u64)),
            Some(RecordError::NoRecording { .. }) => prop_assert!(length < 16),
            // Between two pushes nothing is missing.
            None => prop_assert!(whole.len() <= found.len()),
            error => prop_assert!(false, "{:?}", error),
        }
    }

    /// A changed byte is found, and what comes before it is whole; no bytes make the reader panic, or take memory that is not there.
    #[test]
    fn a_changed_byte_is_found(pushes in prop::collection::vec(push(), 1..4), place in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let mut bytes = written(&pushes);
        let (before, _) = read(&bytes);
        let place = place.index(bytes.len());
        bytes[place] ^= flip;
        let (found, error) = read(&bytes);
        prop_assert!(error.is_some());
        prop_assert!(found.len() < before.len());
        let same = format!("{:?}", &before[..found.len()]) == format!("{found:?}");
        prop_assert!(same);
    }

    #[test]
    fn any_bytes_are_refused_or_read(mut bytes in prop::collection::vec(any::<u8>(), 0..200), begins in any::<bool>()) {
        if begins {
            bytes.splice(0..0, written(&[]));
        }
        let (found, error) = read(&bytes);
        prop_assert!(found.is_empty() && (error.is_some() || begins && bytes.len() == written(&[]).len()));
    }
}

#[test]
fn errors_name_the_file_and_the_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(file_name(0));
    drop(PushWriter::create(&path, &head()).unwrap());
    let again = PushWriter::create(&path, &head()).unwrap_err().to_string();
    assert!(again.contains("worker-0.pushes is there already"), "{again}");
    let nowhere = PushWriter::create(&directory.path().join("no/where"), &head()).unwrap_err();
    assert!(nowhere.to_string().contains("no/where"), "{nowhere}");
    assert!(matches!(
        PushReader::open(&directory.path().join("nothing")),
        Err(RecordError::Unreadable { .. })
    ));

    let of = |bytes: &[u8]| read(bytes).1.unwrap().to_string();
    let bytes = written(&[(vec![7], vec![1.0; 3]), (vec![8], vec![2.0; 3])]);
    assert_eq!(of(&bytes[..0]), "a-file is no recording of pushes");
    assert_eq!(of(&[7; 40]), "a-file is no recording of pushes");
    let last = bytes.len() - 1;
    let cut = of(&bytes[..last]);
    assert_eq!(
        cut,
        format!("a-file is cut off: it ends at byte {last}, in the middle of push 1, counted from 0")
    );
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert_eq!(of(&newer), "a-file is a recording of version 9, this build reads version 1");
    let mut damaged = bytes;
    damaged[last - 5] ^= 1;
    assert!(
        of(&damaged).starts_with("a-file is damaged: a push with a wrong checksum at byte "),
        "{}",
        of(&damaged)
    );
}

/// A push that no table can have is refused, even if its checksums are right.
#[test]
fn a_push_that_fits_no_table_is_damage() {
    for (keys, gradients) in [(vec![100], vec![0.0; 3]), (vec![5], vec![0.0; 2])] {
        let (found, error) = read(&written(&[(keys, gradients)]));
        assert!(
            found.is_empty() && matches!(error, Some(RecordError::Damaged { at, pushes: 0, .. }) if at > 0)
        );
    }
}
