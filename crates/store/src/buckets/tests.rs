use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;

/// Buckets beside what they should hold, and what a snapshot would have been told.
struct Checked {
    buckets: Buckets,
    rows: BTreeMap<u64, Vec<u32>>,
    told: Told,
}

/// The key of each position, by what was told.
#[derive(Default)]
struct Told {
    keys: HashMap<usize, At>,
    on_their_way: Vec<u64>,
}

/// What is at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Key(u64),
    /// A row that has arrived, with what was noted.
    Arrived(bool),
}

impl Moves for Told {
    fn leave(&mut self, position: usize, key: u64, _payload: &[u32]) -> bool {
        let at = self.keys.remove(&position).expect("a row that leaves was there");
        assert!(at == At::Key(key) || at == At::Arrived(key.is_multiple_of(3)), "{at:?} {key}");
        self.on_their_way.push(key);
        key.is_multiple_of(3)
    }

    fn arrive(&mut self, position: usize, noted: bool) {
        // Which one it is, [`Checked::check`] finds out.
        assert_eq!(self.keys.insert(position, At::Arrived(noted)), None);
    }
}

impl Checked {
    fn new(payload_words: usize) -> Self {
        assert!(Buckets::suit(payload_words));
        Self { buckets: Buckets::new(payload_words), rows: BTreeMap::new(), told: Told::default() }
    }

    /// Adds a row, or removes it if it is there.
    fn toggle(&mut self, key: u64) {
        if self.rows.remove(&key).is_some() {
            let position = self.buckets.position(self.buckets.find(key).unwrap());
            self.told.keys.remove(&position);
            assert!(self.buckets.remove(key));
            return;
        }
        let mut payload = vec![0; self.buckets.shape.row - KEY_WORDS];
        let moves = self.buckets.moves();
        let place = self.buckets.insert(
            key,
            |words| {
                assert!(words.iter().all(|word| *word == 0));
                words.fill(u32::try_from(key & 0xffff).unwrap() ^ 0x5_5555);
                payload.copy_from_slice(words);
            },
            Some(&mut self.told),
        );
        self.rows.insert(key, payload);
        if self.buckets.moves() != moves {
            self.name_arrived();
        }
        assert_eq!(self.told.keys.insert(self.buckets.position(place), At::Key(key)), None);
    }

    /// Replaces what [`Moves::arrive`] was told by keys.
    fn name_arrived(&mut self) {
        // Twice in the list, if they moved twice.
        let moved: BTreeSet<u64> = self.told.on_their_way.drain(..).collect();
        for key in moved {
            let position = self.buckets.position(self.buckets.find(key).unwrap());
            let at = self.told.keys.insert(position, At::Key(key));
            assert_eq!(at, Some(At::Arrived(key.is_multiple_of(3))));
        }
    }

    fn check(&self) {
        let buckets = &self.buckets;
        assert_eq!(buckets.len(), self.rows.len());
        for (key, payload) in &self.rows {
            let place = buckets.find(*key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!(buckets.payload(place), payload);
            assert_eq!(buckets.row_at(buckets.position(place)), Some((*key, payload.as_slice())));
        }
        let rows: BTreeMap<u64, Vec<u32>> =
            buckets.iter().map(|(key, words)| (key, words.to_vec())).collect();
        assert_eq!(rows, self.rows);
        assert_eq!(buckets.iter().count(), self.rows.len());
        let positions =
            (0..buckets.positions()).filter_map(|at| buckets.row_at(at).map(|(key, _)| (at, At::Key(key))));
        assert_eq!(positions.collect::<HashMap<_, _>>(), self.told.keys);
    }

    /// Looks for keys as a batch does.
    fn find_many<const N: usize>(&self, keys: &[u64]) -> Vec<Option<BucketPlace>> {
        let mut homes = [BucketPlace::FIRST; N];
        if !self.buckets.homes(keys, &mut homes) {
            return vec![None; keys.len()];
        }
        let mut places = Vec::new();
        let asked = keys.iter().copied().zip(homes);
        self.buckets.in_homes(asked, |_, place, is_there| places.push(is_there.then_some(place)));
        for ((place, key), home) in places.iter_mut().zip(keys).zip(homes) {
            if place.is_none() {
                self.buckets.prefetch_displaced(*key, home);
                *place = self.buckets.find_displaced(*key, home);
            }
        }
        places
    }
}

/// Keys whose hashes are these: the finaliser backwards.
fn key_of(hash: u64) -> u64 {
    let mut key = hash ^ hash >> 33;
    key = key.wrapping_mul(0x9cb4_b2f8_1293_37db);
    key ^= key >> 33;
    key = key.wrapping_mul(0x4f74_430c_22a5_4005);
    key ^ key >> 33
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Few prefixes and few buckets, so that rows are displaced, around the end and far, too.
    #[test]
    fn buckets_find_what_they_were_given(
        payload in 1_usize..=4,
        steps in prop::collection::vec((0_u64..3, 0_u64..60, prop::sample::select(vec![0_u64, 1 << 22, 0x8000_0000, 0xffff_fff0])), 0..900),
    ) {
        let mut checked = Checked::new(payload);
        for (prefix, middle, low) in steps {
            checked.toggle(key_of(prefix << 62 | middle << 34 | low));
        }
        checked.check();
    }

    /// Rows of a batch are found as one by one.
    #[test]
    fn a_batch_finds_the_same_rows(
        payload in 1_usize..=4,
        rows in 0_u64..3_000,
        asked in prop::collection::vec(0_u64..4_000, 32),
    ) {
        let mut checked = Checked::new(payload);
        (0..rows).for_each(|key| checked.toggle(key));
        let found = checked.find_many::<32>(&asked);
        let one_by_one: Vec<_> = asked.iter().map(|key| checked.buckets.find(*key)).collect();
        prop_assert_eq!(&found, &one_by_one);
        let is_there: Vec<bool> = asked.iter().map(|key| *key < rows).collect();
        prop_assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), is_there);
    }
}

#[test]
fn rows_come_and_go_over_many_splits() {
    for payload in 1..=4 {
        let mut checked = Checked::new(payload);
        for key in 0..60_000 {
            checked.toggle(key);
            if key % 3 == 2 {
                checked.toggle(key - 1);
            }
        }
        checked.check();
        assert!(checked.buckets.directory.len() >= 8);
        (0..60_000).filter(|key| key % 3 != 1).for_each(|key| checked.toggle(key));
        assert!(checked.rows.is_empty());
        checked.check();
    }
}

/// As many rows go as come, for long: what is left of those that went must not add up.
#[test]
fn rows_that_come_and_go_do_not_slow_look_ups() {
    let mut checked = Checked::new(1);
    let rows = 4_000;
    (0..rows).for_each(|key| checked.toggle(key));
    let pages = checked.buckets.pages.len();
    for key in rows..50 * rows {
        checked.toggle(key - rows);
        checked.toggle(key);
    }
    checked.check();
    assert!(checked.buckets.pages.len() <= pages + 1);
    let absent = (rows..50 * rows).take(2_000);
    let looks: usize = absent.map(|key| checked.distances_of(key)).sum();
    assert!(looks < 4_000, "{looks}");
}

impl Checked {
    /// Number of buckets that a look-up for a key looks at beside its own.
    fn distances_of(&self, key: u64) -> usize {
        let mut homes = [BucketPlace::FIRST];
        assert!(self.buckets.homes(&[key], &mut homes));
        let words = self.buckets.pages.words(homes[0].page);
        let last = words[homes[0].start as usize + (1 << self.buckets.shape.bucket_log2) - 1];
        distances(last).count()
    }
}

/// More hashes than one partition holds, in one bucket; and as many that only differ in their last bits: the
/// directory must not grow for them.
#[test]
fn hashes_that_collide_cost_time_and_no_memory() {
    let mut checked = Checked::new(1);
    (0..12_000).for_each(|low| checked.toggle(key_of(low << 32 | 7)));
    checked.check();
    (0..12_000).for_each(|low| checked.toggle(key_of(0xabcd << 48 | low)));
    checked.check();
    let bytes = checked.buckets.memory_bytes();
    assert!(bytes < 24_000 * 32, "{bytes}");
}

/// Bounds the pause of an insertion on any machine, and the memory of rows.
#[test]
fn an_insertion_moves_one_partition_at_most() {
    #[derive(Default)]
    struct Count(usize);
    impl Moves for Count {
        fn leave(&mut self, _: usize, _: u64, _: &[u32]) -> bool {
            self.0 += 1;
            false
        }
        fn arrive(&mut self, _: usize, _: bool) {}
    }
    let mut buckets = Buckets::new(1);
    let (mut most, mut moved) = (0, Count::default());
    let rows = 1_000_000;
    for key in (0..).take(rows) {
        let before = moved.0;
        buckets.insert(key, |_| (), Some(&mut moved));
        most = most.max(moved.0 - before);
    }
    let partition = buckets.shape.room(PARTITION_PAGES_MAX);
    assert!(most <= 3 * partition, "{most}");
    assert!(moved.0 <= 20 * rows, "{}", moved.0);
    assert!(buckets.memory_bytes() <= 17 * rows, "{}", buckets.memory_bytes());
}
