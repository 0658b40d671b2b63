use proptest::prelude::*;

use super::*;

fn files() -> (tempfile::TempDir, RowFiles) {
    let directory = tempfile::tempdir().unwrap();
    let files = RowFiles::new(&directory.path().join("state"), 1 << 20).unwrap();
    (directory, files)
}

/// A block that has a number in all words that a store uses.
fn filled(with: u32) -> Block {
    let mut block = Block::ZERO;
    block.0[..BLOCK_WORDS].fill(with);
    block
}

fn words(block: &Block) -> &[u32] {
    &block.0[..BLOCK_WORDS]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn blocks_are_read_as_they_were_written_last(
        batches in prop::collection::vec(prop::collection::btree_set(0_u32..300, 1..120), 1..8),
        io_uring: bool,
    ) {
        if !io_uring {
            requests::without_io_uring();
        }
        let (_directory, files) = files();
        let mut file = files.create().unwrap();
        file.reserve(300).unwrap();
        let mut model = std::collections::BTreeMap::new();
        for (turn, numbers) in (1_u32..).zip(batches) {
            let numbers: Vec<u32> = numbers.into_iter().collect();
            let mut blocks: Vec<Block> = numbers.iter().map(|number| filled(1_000 * turn + number)).collect();
            file.write(&numbers, &mut blocks).unwrap();
            model.extend(numbers.iter().map(|number| (*number, 1_000 * turn + number)));
        }
        let numbers: Vec<u32> = model.keys().copied().collect();
        let mut blocks = vec![Block::ZERO; numbers.len()];
        file.read(&numbers, &mut blocks).unwrap();
        for (block, expected) in blocks.iter().zip(model.values()) {
            let expected = filled(*expected);
            prop_assert_eq!(words(block), words(&expected));
        }
    }
}

#[test]
fn no_name_is_left() {
    let (directory, files) = files();
    let _files = (files.create().unwrap(), files.create().unwrap());
    assert_eq!(std::fs::read_dir(directory.path().join("state")).unwrap().count(), 0);
}

#[test]
fn a_damaged_block_is_an_error_that_names_it() {
    let (_directory, files) = files();
    let mut file = files.create().unwrap();
    file.reserve(8).unwrap();
    let mut blocks: Vec<Block> = (0..4).map(filled).collect();
    file.write(&[2, 3, 5, 7], &mut blocks).unwrap();
    file.file.write_all_at(bytemuck::cast_slice(&filled(9).0), 5 * BLOCK_BYTES).unwrap();
    let mut read = blocks.clone();
    file.read(&[2, 3, 7], &mut read[..3]).unwrap();
    let error = file.read(&[2, 3, 5, 7], &mut read).unwrap_err();
    let path = file.path.display();
    assert_eq!(error.reason, format!("cannot read block 5 of {path}: its checksum is wrong"));
    assert!(!error.is_full);
}

#[test]
fn a_block_in_the_place_of_another_is_an_error() {
    let (_directory, files) = files();
    let mut file = files.create().unwrap();
    file.reserve(8).unwrap();
    let mut blocks = [filled(1)];
    file.write(&[1], &mut blocks).unwrap();
    file.file.write_all_at(bytemuck::cast_slice(&blocks[0].0), 6 * BLOCK_BYTES).unwrap();
    let error = file.read(&[6], &mut blocks).unwrap_err();
    assert!(
        error.reason.contains("cannot read block 6") && error.reason.ends_with("block 1 is there instead"),
        "{error}"
    );
}

#[test]
fn a_block_beyond_the_file_is_an_error() {
    let (_directory, files) = files();
    let mut file = files.create().unwrap();
    file.reserve(2).unwrap();
    let error = file.read(&[40], &mut [Block::ZERO]).unwrap_err();
    assert!(error.reason.contains("block 40") && error.reason.ends_with("fill whole buffer"), "{error}");
}

#[test]
fn a_full_disk_is_told_from_other_failures() {
    // Every write to this device finds no room.
    let Ok(device) = OpenOptions::new().read(true).write(true).open("/dev/full") else { return };
    let (_directory, files) = files();
    let mut file = files.create().unwrap();
    file.file = Arc::new(device);
    let error = file.write(&[0], &mut [Block::ZERO]).unwrap_err();
    assert!(error.is_full && error.reason.contains("cannot write block 0"), "{error:?}");
    // It has no reservation either, and is no file that could.
    assert!(!file.reserve(1).unwrap_err().is_full);
}

#[test]
fn a_directory_that_refuses_is_named() {
    let (directory, files) = files();
    std::fs::remove_dir(directory.path().join("state")).unwrap();
    let error = files.create().unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("cannot create ") && error.contains("/state/rows-"), "{error}");
}
