//! Keys to numbers, for keys that are all known: whether a key is there or not, it has one place to look at.
//!
//! The hashed unit is a block of 64 keys with a bit for every key that is there: keys that are close to each other, as those of
//! a vocabulary by frequency are, share a block, and all blocks then fit the first cache. Each block belongs to a bucket, each bucket has
//! a pilot, and block and pilot together determine the entry of the block (hash and displace: Belazzougui, Botelho and
//! Dietzfelbinger 2009; pilots as in Pibiri and Trani 2021). A worker looks every key of a push up, hot or cold: this is the most
//! frequent thing it does.

/// Entries for each block: the rest stays empty, or the last buckets would hardly find a pilot.
const ENTRIES_PER_BLOCK: f64 = 1.1;
const BLOCKS_PER_BUCKET: usize = 4;
const BLOCK_KEYS: usize = u64::BITS as usize;
const BLOCK_BITS: u32 = BLOCK_KEYS.trailing_zeros();

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Clone, Copy)]
struct Block {
    /// Its keys without their lowest bits.
    name: u64,
    /// A bit for each key that is there.
    keys: u64,
    /// The number of its first key if they are consecutive, and else where its numbers begin in the list of all.
    first: u32,
    /// So many keys from the first place of the block on, in this block and those after it, are all there and have consecutive numbers.
    run: u32,
    form: Form,
}

impl Block {
    /// Returns the number of its keys that are below one of them.
    #[inline]
    fn keys_below(&self, key: u64) -> u32 {
        (self.keys & (bit(key) - 1)).count_ones()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Each key has the number after that of the key before, as where keys are numbered in order, and the list is not needed.
    Consecutive,
    /// Keys are counted up to the one that is looked for.
    Counted,
    /// The list has a place for each key there could be.
    Dense,
}

/// A block with so many keys is dense: the list becomes twice as long at most.
const DENSE: u32 = u64::BITS / 2;

/// No key has this name.
const NO_BLOCK: Block = Block { name: u64::MAX, keys: 0, first: 0, run: 0, form: Form::Consecutive };

/// Neighbouring keys that all are there, and have consecutive numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The number of the first of them.
    pub number: u32,
    /// The last of them.
    pub last: u64,
}

/// Finds rows one after the other.
#[derive(Debug, Clone)]
pub struct Search<'i> {
    index: &'i Index,
    /// That of the last key.
    block: Block,
}

impl Search<'_> {
    /// The number of a row.
    #[must_use]
    #[inline]
    pub fn find(&mut self, key: u64) -> Option<u32> {
        self.go_to(key);
        if self.block.keys & bit(key) == 0 {
            return None;
        }
        let before = match self.block.form {
            Form::Consecutive => return Some(self.block.first + self.block.keys_below(key)),
            Form::Counted => self.block.keys_below(key) as usize,
            Form::Dense => place_in_block(key),
        };
        self.index.numbers.get(self.block.first as usize + before).copied()
    }

    /// The keys from this one on that are known to be rows with consecutive numbers, as those of a dense table are; there may be more.
    #[must_use]
    #[inline]
    pub fn run(&mut self, key: u64) -> Option<Run> {
        self.go_to(key);
        let place = u32::try_from(place_in_block(key)).expect("a block has 64 places");
        let more = self.block.run.checked_sub(place + 1)?;
        Some(Run { number: self.block.first + place, last: key + u64::from(more) })
    }

    /// Makes the block that of a key.
    #[inline]
    fn go_to(&mut self, key: u64) {
        let name = key >> BLOCK_BITS;
        if name != self.block.name {
            self.block = self.index.block(name).copied().unwrap_or(Block { name, ..NO_BLOCK });
        }
    }
}

/// Finds the number of a row by its key.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    seed: u64,
    pilots: Vec<u16>,
    /// An empty one has the name of another.
    entries: Vec<Block>,
    /// Numbers by rising key, with gaps in dense blocks.
    numbers: Vec<u32>,
}

impl Index {
    /// Keys, all different; they are numbered as they come.
    pub(super) fn new(keys: impl Iterator<Item = u64>) -> Self {
        let mut by_key: Vec<(u64, u32)> = keys.zip(0..).collect();
        by_key.sort_unstable();
        let (mut blocks, mut numbers) = (Vec::new(), Vec::new());
        for block in by_key.chunk_by(|(key, _), (next, _)| key >> BLOCK_BITS == next >> BLOCK_BITS) {
            let first = u32::try_from(numbers.len()).expect("a plan has fewer than 2^31 rows");
            let keys = block.iter().fold(0, |keys, (key, _)| keys | bit(*key));
            let name = block[0].0 >> BLOCK_BITS;
            if block.is_sorted_by(|(_, number), (_, next)| number + 1 == *next) {
                let run = keys.trailing_ones();
                blocks.push(Block { name, keys, first: block[0].1, run, form: Form::Consecutive });
            } else if keys.count_ones() < DENSE {
                blocks.push(Block { name, keys, first, run: 0, form: Form::Counted });
                numbers.extend(block.iter().map(|(_, number)| *number));
            } else {
                blocks.push(Block { name, keys, first, run: 0, form: Form::Dense });
                numbers.resize(numbers.len() + BLOCK_KEYS, 0);
                for (key, number) in block {
                    numbers[first as usize + place_in_block(*key)] = *number;
                }
            }
        }
        join_runs(&mut blocks);
        if blocks.is_empty() {
            return Self::default();
        }
        // That two blocks want the same entry under each pilot is as good as impossible, and another seed ends it.
        let index =
            (0..).find_map(|seed| Self::with_seed(seed, &blocks)).expect("some seed parts all blocks");
        Self { numbers, ..index }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "sizes far below 2^53"
    )]
    fn with_seed(seed: u64, blocks: &[Block]) -> Option<Self> {
        let entries = (blocks.len() as f64 * ENTRIES_PER_BLOCK).ceil() as usize;
        let pilots = vec![0; blocks.len().div_ceil(BLOCKS_PER_BUCKET)];
        // The first block is where it belongs, too; it fills the other entries as well, and no look-up finds it there.
        let mut index = Self { seed, pilots, entries: vec![blocks[0]; entries], numbers: Vec::new() };
        let mut buckets = vec![Vec::new(); index.pilots.len()];
        for block in blocks {
            buckets[index.bucket(index.hash(block.name))].push(*block);
        }
        // Large buckets first, while there is much room.
        let mut order: Vec<usize> = (0..buckets.len()).collect();
        order.sort_by_key(|&bucket| core::cmp::Reverse(buckets[bucket].len()));
        let mut taken = vec![false; entries];
        let mut places = Vec::new();
        for bucket in order {
            let blocks = &buckets[bucket];
            index.pilots[bucket] = (0..=u16::MAX).find(|pilot| {
                places.clear();
                blocks.iter().all(|block| {
                    let place = index.place(index.hash(block.name), *pilot);
                    let free = !taken[place] && !places.contains(&place);
                    places.push(place);
                    free
                })
            })?;
            for (block, place) in blocks.iter().zip(&places) {
                taken[*place] = true;
                index.entries[*place] = *block;
            }
        }
        Some(index)
    }

    /// The number of a row.
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.search().find(key)
    }

    /// To find many: those of one block are found faster one after the other.
    #[inline]
    pub(super) fn search(&self) -> Search<'_> {
        Search { index: self, block: NO_BLOCK }
    }

    #[inline]
    fn block(&self, name: u64) -> Option<&Block> {
        let hash = self.hash(name);
        let pilot = self.pilots.get(self.bucket(hash))?;
        self.entries.get(self.place(hash, *pilot)).filter(|block| block.name == name)
    }

    /// No two blocks have the same.
    #[inline]
    fn hash(&self, name: u64) -> u64 {
        let hash = (name ^ self.seed).wrapping_mul(MIX);
        hash ^ (hash >> 32)
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        scale(hash.wrapping_mul(MIX), self.pilots.len())
    }

    #[inline]
    fn place(&self, hash: u64, pilot: u16) -> usize {
        scale(
            (hash ^ u64::from(pilot).wrapping_mul(MIX)).wrapping_mul(0xd6e8_feb8_6659_fd93),
            self.entries.len(),
        )
    }
}

/// Lets runs that end with their block go on into the next one. Blocks rise.
fn join_runs(blocks: &mut [Block]) {
    let mut next = NO_BLOCK;
    for block in blocks.iter_mut().rev() {
        let goes_on = block.run == u64::BITS
            && next.run > 0
            && next.name == block.name + 1
            && next.first == block.first + u64::BITS;
        if goes_on {
            block.run += next.run;
        }
        next = *block;
    }
}

/// The bit of a key in its block.
#[inline]
fn bit(key: u64) -> u64 {
    1 << place_in_block(key)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "it is below 64")]
fn place_in_block(key: u64) -> usize {
    (key % u64::from(u64::BITS)) as usize
}

/// A number below `end`, from the upper half of a hash.
#[inline]
fn scale(hash: u64, end: usize) -> usize {
    (((hash >> 32) * end as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &[u64], strangers: impl Iterator<Item = u64>) {
        let index = Index::new(keys.iter().copied());
        for (number, &key) in (0u32..).zip(keys) {
            assert_eq!(index.find(key), Some(number));
        }
        let mut search = index.search();
        for &key in keys {
            let Some(Run { number, last }) = search.run(key) else { continue };
            let run = key..=last;
            assert!(
                run.clone().zip(number..).all(|(key, number)| index.find(key) == Some(number)),
                "{run:?}"
            );
        }
        for key in strangers {
            let is_there = keys.contains(&key);
            assert_eq!(index.find(key).is_some(), is_there, "{key}");
            assert!(is_there || index.search().run(key).is_none(), "{key}");
        }
    }

    #[test]
    fn none_one_and_two() {
        check(&[], [0, 1, u64::MAX].into_iter());
        check(&[0], [0, 1, u64::MAX].into_iter());
        check(&[u64::MAX, 0], [0, 1, u64::MAX].into_iter());
    }

    #[test]
    fn keys_next_to_each_other_and_far_apart() {
        check(&(0..5000).collect::<Vec<_>>(), 0..6000);
        check(&(0..64).map(|bit| 1 << bit).collect::<Vec<_>>(), 0..6000);
        check(&(0..5000).filter(|key| key % 3 != 0).rev().collect::<Vec<_>>(), 0..6000);
        check(&(0..3000).map(|key| key << 44).collect::<Vec<_>>(), 0..3000);
    }

    #[test]
    fn keys_in_order_need_no_list() {
        let in_order: Vec<u64> = (0..5000).filter(|key| key % 3 != 0).collect();
        assert!(Index::new(in_order.iter().copied()).numbers.is_empty());
        check(&in_order, 0..6000);
        // As over two shards: of each block one half comes after the other halves of all.
        check(&(0..5000).step_by(2).chain((1..5000).step_by(2)).collect::<Vec<_>>(), 0..6000);
    }

    #[test]
    fn runs_go_on_over_blocks() {
        let index = Index::new((0..1000).chain(1064..1100));
        let run = |key| index.search().run(key);
        assert_eq!(run(70), Some(Run { number: 70, last: 999 }));
        assert_eq!(run(999), Some(Run { number: 999, last: 999 }));
        assert_eq!(run(1000), None);
        let last_block = Index::new(u64::MAX - 63..=u64::MAX);
        assert_eq!(last_block.search().run(u64::MAX - 1), Some(Run { number: 62, last: u64::MAX }));
    }

    #[test]
    fn many_keys() {
        let index = Index::new((0..200_000u64).map(|key| key * key));
        assert!((0..200_000).all(|key| index.find(key * key) == Some(u32::try_from(key).unwrap())));
        assert_eq!(index.find(2), None);
    }
}
