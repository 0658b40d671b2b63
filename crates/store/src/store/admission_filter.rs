//! Admission of one table: the gradients that make a row.

use super::copy_on_write::CopiedRows;
use super::marks::{GROUP, Marks, Snapshots};
use super::snapshot::Extent;
use crate::init::mix_with;
use crate::row_lifecycle::{Admission, RowLifecycle};

/// Apart from the first values of rows, which come from the same seed.
const STREAM: u64 = 0x6164_6d69_7373_696f;
/// Keys of a set.
const WAYS: usize = 12;
/// Words of a set: a fragment of the hash for each key, then a byte for each of its counts, then a word that is not used,
/// for a set to be a cache line.
const SET_WORDS: usize = 16;
/// Number of groups of sets that one call looks at: a megabyte.
const GROUPS_LOOKED_MAX: usize = 1 << 8;
/// Bytes of a set in a saved piece: its number, and its words.
const SAVED_BYTES: usize = (1 + SET_WORDS) * size_of::<u32>();

/// Decides which gradients of a table make a row.
#[derive(Debug, Clone)]
pub(super) struct AdmissionFilter {
    seed: u64,
    admission: Option<Admission>,
    counts: Option<Box<Counts>>,
    /// Gradients that made no row.
    pub(super) dropped: u64,
}

impl AdmissionFilter {
    pub(super) fn new(growth: &RowLifecycle, seed: u64) -> Self {
        let counts = match growth.admission {
            Some(Admission::Occurrences { keys, .. }) => Some(Box::new(Counts::new(keys))),
            _ => None,
        };
        Self { seed: seed ^ STREAM, admission: growth.admission, counts, dropped: 0 }
    }

    /// Returns true if a row that is not there need not be made.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.admission.is_some()
    }

    /// Returns true if a gradient for a row that is not there makes it, after so many steps of the table (rule G1).
    pub(super) fn admits(&mut self, key: u64, step: u64) -> bool {
        let hash = mix_with(self.seed, key);
        let admits = match self.admission {
            None => true,
            Some(Admission::Probability(probability)) => {
                let draw = (mix_with(hash, step) >> 11) as f64 / (1_u64 << 53) as f64;
                draw < f64::from(probability)
            }
            Some(Admission::Occurrences { updates, .. }) => {
                let counts = self.counts.as_mut().expect("an admission filter that counts has counts");
                counts.add(hash, updates)
            }
        };
        self.dropped += u64::from(!admits);
        admits
    }

    pub(super) fn counts_mut(&mut self) -> Option<&mut Counts> {
        self.counts.as_deref_mut()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.counts.as_ref().map_or(0, |counts| counts.bytes_without_copies() + counts.copied.memory_bytes())
    }

    /// The same without copies for a snapshot.
    pub(super) fn bytes_without_copies(&self) -> usize {
        self.counts.as_ref().map_or(0, |counts| counts.bytes_without_copies())
    }
}

/// Number of updates of keys without a row: a set-associative table. Of each set, the key that was updated last is the
/// first, and the last one makes room for a new one.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    words: Vec<u32>,
    snapshots: Snapshots,
    marks: Marks,
    copied: CopiedRows,
    /// The group of sets that a snapshot looks at next.
    next: usize,
}

impl Counts {
    fn new(keys: u64) -> Self {
        let sets = usize::try_from(keys.div_ceil(WAYS as u64)).expect("at most 2^32 keys");
        Self {
            words: vec![0; sets * SET_WORDS],
            snapshots: Snapshots::default(),
            marks: Marks::default(),
            copied: CopiedRows::new(SET_WORDS),
            next: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    fn sets(&self) -> usize {
        self.words.len() / SET_WORDS
    }

    /// Counts an update. Whether it is as many as are wanted: then the key is forgotten.
    #[expect(clippy::cast_possible_truncation, reason = "a piece of a hash")]
    fn add(&mut self, hash: u64, wanted: u8) -> bool {
        let fragment = hash as u32;
        let set = ((hash >> 32) as usize * self.sets()) >> 32;
        self.touch(set);
        let words = &mut self.words[set * SET_WORDS..(set + 1) * SET_WORDS];
        let mut keys = keys_of(words);
        let found = keys.iter().position(|(of, count)| *of == fragment && *count > 0);
        let count = found.map_or(0, |way| keys[way].1) + 1;
        let admits = count >= wanted;
        if admits {
            let way = found.expect("more than one update is wanted");
            keys[way..].rotate_left(1);
            keys[WAYS - 1] = (0, 0);
        } else {
            keys[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
            keys[0] = (fragment, count);
        }
        put_keys(words, keys);
        admits
    }

    #[inline]
    fn touch(&mut self, set: usize) {
        let is_watched = self.snapshots.tracks || self.snapshots.active.is_some();
        if is_watched && self.marks.touch(set, &self.snapshots) {
            self.copied.push(set as u64, &self.words[set * SET_WORDS..(set + 1) * SET_WORDS]);
        }
    }

    /// Another snapshot begins, or what there is of it ends.
    ///
    /// All counts are in any snapshot, also one of changes: who goes on from it looks for rows in those before, and for nothing else.
    pub(super) fn enter(&mut self, snapshots: Snapshots) {
        self.snapshots =
            Snapshots { active: snapshots.active.map(|_| Extent::Full), tracks: false, ..snapshots };
        self.next = 0;
        self.copied.clear();
        if snapshots.active.is_none() {
            self.marks = Marks::default();
        }
    }

    /// The next sets of the active snapshot, as bytes for [`Counts::restore`]; at most so many, or none where many are empty.
    /// `None`: those before were all.
    pub(super) fn read(&mut self, sets_max: usize) -> Option<Vec<u8>> {
        let extent = self.snapshots.active.expect("only an active snapshot is read");
        let mut bytes = Vec::new();
        let mut left = sets_max;
        while left > 0
            && let Some(burst) = self.copied.take(left)
        {
            for (set, words) in burst.keys.iter().zip(burst.words.chunks_exact(SET_WORDS)) {
                save(*set, words, &mut bytes);
            }
            left -= burst.keys.len();
        }
        let end = self.sets().div_ceil(GROUP);
        for _ in 0..GROUPS_LOOKED_MAX {
            let found = self.marks.next_pending(self.next, end, extent, self.snapshots);
            let Some((group, pending)) = found else {
                return (!bytes.is_empty()).then_some(bytes);
            };
            self.next = group;
            if left == 0 {
                break;
            }
            while *pending != 0 && left > 0 {
                let set = group * GROUP + pending.trailing_zeros() as usize;
                *pending &= *pending - 1;
                let Some(words) = self.words.get(set * SET_WORDS..(set + 1) * SET_WORDS) else { continue };
                // In a copy that has counted nothing, sets without keys are as they should be.
                if words.iter().any(|word| *word != 0) {
                    save(set as u64, words, &mut bytes);
                    left -= 1;
                }
            }
        }
        Some(bytes)
    }

    /// Returns true if these are sets that this table can have.
    pub(super) fn accepts(&self, bytes: &[u8]) -> bool {
        let mut sets = bytes.chunks_exact(SAVED_BYTES).map(|saved| words_of(saved).next());
        bytes.len().is_multiple_of(SAVED_BYTES)
            && sets.all(|set| set.is_some_and(|set| (set as usize) < self.sets()))
    }

    /// Adds what was read, of this table or of those of several shards: keys come behind those of the set, as long as there is room.
    pub(super) fn restore(&mut self, bytes: &[u8]) {
        for saved in bytes.chunks_exact(SAVED_BYTES) {
            let mut words = words_of(saved);
            let set = words.next().expect("a set has a number") as usize;
            let words: [u32; SET_WORDS] = std::array::from_fn(|_| words.next().unwrap_or(0));
            self.touch(set);
            let own = &mut self.words[set * SET_WORDS..(set + 1) * SET_WORDS];
            let mut keys = keys_of(own);
            for (fragment, count) in keys_of(&words).into_iter().filter(|(_, count)| *count > 0) {
                let is_place = |(of, own): &&mut (u32, u8)| *own == 0 || *of == fragment;
                if let Some(place) = keys.iter_mut().find(is_place) {
                    *place = (fragment, count.max(place.1));
                }
            }
            put_keys(own, keys);
        }
    }

    fn bytes_without_copies(&self) -> usize {
        self.words.len() * size_of::<u32>() + self.marks.memory_bytes()
    }
}

/// The keys of a set: fragments of their hashes, and counts.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "bytes of a word")]
fn keys_of(words: &[u32]) -> [(u32, u8); WAYS] {
    std::array::from_fn(|way| (words[way], (words[WAYS + way / 4] >> (way % 4 * 8)) as u8))
}

#[inline]
fn put_keys(words: &mut [u32], keys: [(u32, u8); WAYS]) {
    words[WAYS..].fill(0);
    for (way, (fragment, count)) in keys.into_iter().enumerate() {
        words[way] = fragment;
        words[WAYS + way / 4] |= u32::from(count) << (way % 4 * 8);
    }
}

fn save(set: u64, words: &[u32], bytes: &mut Vec<u8>) {
    let set = u32::try_from(set).expect("fewer sets than keys");
    bytes.extend(std::iter::once(&set).chain(words).flat_map(|word| word.to_le_bytes()));
}

fn words_of(saved: &[u8]) -> impl Iterator<Item = u32> {
    saved.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the share of keys that are not made by their second gradient if so many others come between.
    fn lost(between: usize) -> f64 {
        const KEYS: u64 = 12 << 10;
        const TRIALS: usize = 300;
        let admission = Some(Admission::Occurrences { updates: 2, keys: KEYS });
        let mut admission_filter = AdmissionFilter::new(&RowLifecycle { admission, eviction: None }, 3);
        let mut new_keys = 0..;
        let mut lost = 0;
        // Many keys of one moment are asked about at once, which is 1% of what is between.
        let asked = between / 100;
        for _ in 0..TRIALS {
            let asked: Vec<u64> = new_keys.by_ref().take(asked).collect();
            assert!(!asked.iter().any(|key| admission_filter.admits(*key, 0)));
            assert!(
                !new_keys.by_ref().take(between - between / 100).any(|key| admission_filter.admits(key, 0))
            );
            lost += asked.iter().filter(|key| !admission_filter.admits(**key, 0)).count();
        }
        lost as f64 / (between / 100 * TRIALS) as f64
    }

    #[test]
    fn counts_are_lost_as_seldom_as_is_documented() {
        assert!(lost((12 << 10) / 4) < 3e-4);
        assert!((0.01..0.03).contains(&lost((12 << 10) / 2)));
        assert!((0.45..0.6).contains(&lost(12 << 10)));
    }

    #[test]
    fn counts_of_several_shards_add_up() {
        let admission = Some(Admission::Occurrences { updates: 3, keys: 1000 });
        let lifecycle = RowLifecycle { admission, eviction: None };
        let mut shards = [0, 1].map(|_| AdmissionFilter::new(&lifecycle, 3));
        for key in 0..60_u64 {
            let times = if key < 30 { 1 } else { 2 };
            for _ in 0..times {
                assert!(!shards[usize::from(key % 2 == 1)].admits(key, 0));
            }
        }
        let mut sum = AdmissionFilter::new(&lifecycle, 3);
        for shard in &shards {
            let words = shard.counts.as_ref().unwrap().words();
            let mut bytes = Vec::new();
            for (set, words) in words.chunks_exact(SET_WORDS).enumerate() {
                save(set as u64, words, &mut bytes);
            }
            let counts = sum.counts_mut().unwrap();
            assert!(counts.accepts(&bytes));
            counts.restore(&bytes);
        }
        assert!((30..60).all(|key| sum.admits(key, 0)));
        assert!((0..30).all(|key| !sum.admits(key, 0)));
        assert!((0..30).all(|key| sum.admits(key, 0)));
    }

    #[test]
    fn the_nth_gradient_makes_the_row_and_counting_begins_again() {
        for updates in [2, 3, 255] {
            let admission = Some(Admission::Occurrences { updates, keys: 1000 });
            let mut admission_filter = AdmissionFilter::new(&RowLifecycle { admission, eviction: None }, 3);
            for _ in 0..3 {
                for count in 1..=updates {
                    for key in 0..50 {
                        assert_eq!(admission_filter.admits(key, 0), count == updates);
                    }
                }
            }
            assert_eq!(admission_filter.dropped, 3 * 50 * (u64::from(updates) - 1));
            assert!(admission_filter.counts_mut().unwrap().words().iter().all(|word| *word == 0));
        }
    }

    #[test]
    fn luck_has_the_given_frequency_and_differs_between_seeds() {
        let growth = RowLifecycle { admission: Some(Admission::Probability(0.25)), eviction: None };
        let draws = |seed, step| -> Vec<bool> {
            let mut admission_filter = AdmissionFilter::new(&growth, seed);
            (0..10_000).map(|key| admission_filter.admits(key, step)).collect()
        };
        let share = draws(1, 0).iter().filter(|admits| **admits).count();
        assert!((2_300..2_700).contains(&share), "{share}");
        assert_eq!(draws(1, 0), draws(1, 0));
        assert_ne!(draws(1, 0), draws(1, 1));
        assert_ne!(draws(1, 0), draws(2, 0));
        let always = RowLifecycle { admission: Some(Admission::Probability(1.0)), eviction: None };
        assert!((0..1000).all(|key| AdmissionFilter::new(&always, 1).admits(key, 0)));
    }
}
