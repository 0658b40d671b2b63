use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// An index beside what it should hold; rows are numbered as they come, from 0.
#[derive(Default)]
struct Checked {
    index: Index,
    /// The hash of each row that ever was.
    hashes: Vec<u64>,
    rows: BTreeMap<u64, u32>,
}

impl Checked {
    /// Adds the hash, or removes it if it is there.
    fn toggle(&mut self, hash: u64) {
        if let Some(row) = self.rows.remove(&hash) {
            self.index.remove(hash, row);
        } else {
            let row = u32::try_from(self.hashes.len()).unwrap();
            self.hashes.push(hash);
            self.index.insert(hash, row, |row| self.hashes[row as usize]);
            self.rows.insert(hash, row);
        }
    }

    fn find(&self, hash: u64) -> Option<u32> {
        let row = self.index.find(hash, |row| self.hashes[row as usize] == hash);
        (row != NO_ROW).then_some(row)
    }

    fn check(&self) {
        for (hash, row) in &self.rows {
            assert_eq!(self.find(*hash), Some(*row), "{hash:x}");
        }
        for hash in self.hashes.iter().filter(|hash| !self.rows.contains_key(*hash)) {
            assert_eq!(self.find(*hash), None, "{hash:x}");
        }
        let partitions = self.index.directory.partitions();
        let rows: u32 = partitions.map(|partition| partition.rows).sum();
        assert_eq!(rows as usize, self.rows.len());
    }
}

proptest! {
    /// Few fragments and few prefixes, so that lines and partitions overflow, around the end, too.
    #[test]
    fn an_index_finds_what_it_was_given(
        steps in prop::collection::vec((0_u64..3, 0_u64..40, prop::sample::select(vec![0_u64, 1, 0x8000, 0xfffe, 0xffff])), 0..600),
    ) {
        let mut checked = Checked::default();
        for (prefix, middle, fragment) in steps {
            checked.toggle(prefix << 62 | middle << 30 | fragment);
        }
        checked.check();
    }
}

#[test]
fn rows_come_and_go_over_many_splits() {
    let mut checked = Checked::default();
    for key in 0..60_000 {
        checked.toggle(hash_of(key));
        if key % 3 == 2 {
            checked.toggle(hash_of(key - 1));
        }
    }
    checked.check();
    assert!(checked.index.directory.len() >= 16);
    for key in (0..60_000).filter(|key| key % 3 != 1) {
        checked.toggle(hash_of(key));
    }
    assert!(checked.rows.is_empty());
    checked.check();
}

/// More hashes than one partition holds, on one fragment; and as many that only differ in their last bits: the
/// directory must not grow for them.
#[test]
fn hashes_that_collide_cost_time_and_no_memory() {
    let mut checked = Checked::default();
    for low in 0..6_000 {
        checked.toggle(low << 16 | 7);
    }
    checked.check();
    for low in 0..6_000 {
        checked.toggle(0xabcd << 48 | low);
    }
    checked.check();
    assert!(checked.index.memory_bytes() < 12_000 * 10, "{}", checked.index.memory_bytes());
}

/// Bounds the pause of an insertion on any machine.
#[test]
fn an_insertion_moves_one_partition_at_most() {
    let mut index = Index::default();
    let (mut most, mut moved) = (0, 0);
    let rows = 1_000_000;
    for row in 0..rows {
        index.insert(hash_of(u64::from(row)), row, |row| hash_of(u64::from(row)));
        most = most.max(index.moved - moved);
        moved = index.moved;
    }
    let partition = PARTITION_ROWS_MAX as usize;
    assert!(most <= 2 * partition, "{most}");
    assert!(moved <= 20 * rows as usize, "{moved}");
    assert!(index.directory.len() * 500 <= rows as usize, "{}", index.directory.len());
    let partitions = index.directory.partitions();
    assert!(partitions.clone().all(|partition| partition.rows <= PARTITION_ROWS_MAX));
    assert!(partitions.count() < rows as usize / 1000);
}

#[test]
fn different_keys_have_different_hashes_that_never_change() {
    assert_eq!([0, 1, u64::MAX].map(hash_of), [0, 0xb456_bcfc_34c2_cb2c, 0x64b5_720b_4b82_5f21]);
}
