//! Index of rows: from the hash of a key to row numbers.
//!
//! ```text
//!  hash │ prefix .. │ .. more │ fragment │
//!          │                      └──► line of the partition: 10 row numbers, 10 fragments, 30 bits more
//!          └──► directory ──► partition ──┘
//! ```
//!
//! It is extendible hashing over partitions of linear probing ([`Directory`]). Keys are not here but in the rows, whose cache
//! line is needed anyway.

use std::mem::size_of;

use prefetch_index::prefetch_index;

use crate::directory::{Directory, half_of, hash_of, lower_half};

/// No row: the number that no row has.
pub(crate) const NO_ROW: u32 = u32::MAX;

/// The most rows of a partition, unless keys were chosen to collide.
const PARTITION_ROWS_MAX: u32 = 4096;
/// Entries of a line.
const LANES: usize = 10;

/// The rows of one table, by hash of their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    directory: Directory<Partition>,
    /// Number of lines of all partitions.
    lines: usize,
    /// Number of entries that were moved so far, for tests that bound the pause of one insertion.
    #[cfg(test)]
    pub(crate) moved: usize,
}

/// The rows whose hashes begin with the same `depth` bits.
#[derive(Debug, Clone)]
struct Partition {
    lines: Box<[Line]>,
    rows: u32,
    /// It splits when it has more rows.
    limit: u32,
    depth: u32,
}

/// A cache line of entries, filled from the front; a line that is not full ends a probe.
///
/// 6 bytes an entry would do, but then row numbers and fragments are in arrays of their own, and a look-up
/// waits for two lines instead of one. What is left over of the line tells more rows apart.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    rows: [u32; LANES],
    fragments: [u16; LANES],
    /// 3 bits of each entry.
    more: u32,
}

const _: () = assert!(size_of::<Line>() == 64);

/// The part of a hash that an entry keeps. The fragment says where the entry belongs in its partition, so a partition
/// grows without a look at keys; the bits of `more` spare most looks at rows of other keys, whose fragments
/// are often the same because they belong to the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    fragment: u16,
    more: u8,
}

impl Mark {
    #[expect(clippy::cast_possible_truncation, reason = "it is a piece of the hash")]
    fn of(hash: u64) -> Self {
        Self { fragment: hash as u16, more: (hash >> 16) as u8 & 0b111 }
    }
}

impl Line {
    const EMPTY: Self = Self { rows: [NO_ROW; LANES], fragments: [0; LANES], more: 0 };

    /// A bit for each lane that has the fragment; a free lane may have it, too.
    #[inline]
    fn lanes_of(&self, fragment: u16) -> u32 {
        let mut lanes = 0;
        for (lane, found) in self.fragments.iter().enumerate() {
            lanes |= u32::from(*found == fragment) << lane;
        }
        lanes
    }

    /// The row of the first lane with the fragment, if it has the whole mark; else [`NO_ROW`], though another
    /// lane may have it. Without a branch, as no processor can predict the lane.
    #[inline]
    fn first(&self, mark: Mark) -> u32 {
        let lanes = self.lanes_of(mark.fragment);
        let lane = (lanes.trailing_zeros() as usize).min(LANES - 1);
        let same = (lanes != 0) & (self.mark(lane) == mark);
        self.rows[lane] | if same { 0 } else { NO_ROW }
    }

    fn mark(&self, lane: usize) -> Mark {
        let more = u8::try_from(self.more >> (3 * lane) & 0b111).expect("3 bits");
        Mark { fragment: self.fragments[lane], more }
    }

    fn set(&mut self, lane: usize, row: u32, mark: Mark) {
        self.rows[lane] = row;
        self.fragments[lane] = mark.fragment;
        self.more = self.more & !(0b111 << (3 * lane)) | u32::from(mark.more) << (3 * lane);
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.rows[LANES - 1] != NO_ROW
    }

    fn len(&self) -> usize {
        self.rows.iter().position(|row| *row == NO_ROW).unwrap_or(LANES)
    }

    /// Takes an entry out; the last one takes its place.
    fn take(&mut self, lane: usize) {
        let last = self.len() - 1;
        self.set(lane, self.rows[last], self.mark(last));
        self.rows[last] = NO_ROW;
    }
}

impl Partition {
    /// An empty one with room for `rows`. Partitions are not all as large: if they were, all would be full at
    /// about the same number of rows in the table, and pushes would be slow whenever it comes.
    fn with_room(rows: u32, prefix: u64, depth: u32) -> Self {
        let half = u64::from(PARTITION_ROWS_MAX / 2);
        let spread = hash_of(prefix << 8 | u64::from(depth)) % half;
        let limit = u32::try_from(half + spread).expect("at most PARTITION_ROWS_MAX");
        Self { lines: vec![Line::EMPTY; lines_for(rows)].into(), rows: 0, limit, depth }
    }

    fn is_full(&self) -> bool {
        self.rows >= self.limit
    }

    /// The line where the probe for a mark begins.
    #[inline]
    fn home(&self, mark: Mark) -> usize {
        (usize::from(mark.fragment) * self.lines.len()) >> 16
    }

    fn after(&self, line: usize) -> usize {
        if line + 1 == self.lines.len() { 0 } else { line + 1 }
    }

    /// Adds an entry, for which there is room.
    fn push(&mut self, row: u32, mark: Mark) {
        let mut at = self.home(mark);
        while self.lines[at].is_full() {
            at = self.after(at);
        }
        let lane = self.lines[at].len();
        self.lines[at].set(lane, row, mark);
        self.rows += 1;
    }

    /// Returns true if another row keeps at least a tenth of the lanes free, without which probes become long.
    fn has_room(&self) -> bool {
        self.rows as usize + 1 < self.lines.len() * LANES * 9 / 10
    }

    /// Grows by an eighth: so at least about 0.8 of the lanes are used.
    fn grow(&mut self) {
        let lines = self.lines.len() + self.lines.len() / 8 + 1;
        let old = std::mem::replace(&mut self.lines, vec![Line::EMPTY; lines].into());
        self.rows = 0;
        for line in &old {
            for lane in 0..line.len() {
                self.push(line.rows[lane], line.mark(lane));
            }
        }
    }

    fn remove(&mut self, mark: Mark, row: u32) {
        let mut hole = self.home(mark);
        let lane = loop {
            match self.lines[hole].rows.iter().position(|found| *found == row) {
                Some(lane) => break lane,
                None => hole = self.after(hole),
            }
        };
        self.rows -= 1;
        let mut was_full = self.lines[hole].is_full();
        self.lines[hole].take(lane);
        // The line now ends probes; so entries that lie behind it, but belong to it or before, must come back.
        let mut at = hole;
        while was_full {
            at = self.after(at);
            if at == hole {
                return;
            }
            was_full = self.lines[at].is_full();
            let line = self.lines[at];
            let behind =
                |lane: &usize| self.distance(self.home(line.mark(*lane)), at) >= self.distance(hole, at);
            if let Some(lane) = (0..line.len()).find(behind) {
                let free = self.lines[hole].len();
                self.lines[hole].set(free, line.rows[lane], line.mark(lane));
                self.lines[at].take(lane);
                hole = at;
            }
        }
    }

    /// Lines from one to another, around the end.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.lines.len() - from }
    }
}

/// The first row from a line on that has the mark and `is` the one.
#[inline]
fn find(lines: &[Line], home: usize, mark: Mark, is: impl Fn(u32) -> bool) -> u32 {
    let mut at = home;
    for _ in 0..lines.len() {
        let line = &lines[at];
        let mut lanes = line.lanes_of(mark.fragment);
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize;
            let row = line.rows[lane];
            if line.mark(lane) == mark && row != NO_ROW && is(row) {
                return row;
            }
            lanes &= lanes - 1;
        }
        if !line.is_full() {
            return NO_ROW;
        }
        at = if at + 1 == lines.len() { 0 } else { at + 1 };
    }
    NO_ROW
}

/// Lines for so many rows, of which 0.85 will be used.
fn lines_for(rows: u32) -> usize {
    rows as usize * 2 / 17 + 1
}

impl Index {
    /// Asks for the memory in which the row of a hash begins to be looked for.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(partition) = self.directory.find(hash) {
            prefetch_index(&partition.lines, partition.home(Mark::of(hash)));
        }
    }

    /// Rows with these hashes, or [`NO_ROW`]: for each the first that the index cannot tell from the one.
    #[inline]
    pub(crate) fn candidates<const BLOCK: usize>(&self, hashes: &[u64], rows: &mut [u32; BLOCK]) {
        // Most are found at once. The others are left for later, for one that waits for memory between two
        // that need not wait makes these wait, too.
        let mut others: [(&[Line], usize, u64); BLOCK] = [(&[], 0, 0); BLOCK];
        let mut count = 0;
        let mut at_of = [0_usize; BLOCK];
        for (at, hash) in hashes.iter().enumerate() {
            let Some(partition) = self.directory.find(*hash) else { continue };
            let home = partition.home(Mark::of(*hash));
            rows[at] = partition.lines[home].first(Mark::of(*hash));
            if rows[at] == NO_ROW {
                prefetch_index(&partition.lines, home + 1);
                others[count] = (&partition.lines, home, *hash);
                at_of[count] = at;
                count += 1;
            }
        }
        for ((lines, home, hash), at) in others[..count].iter().zip(at_of) {
            rows[at] = find(lines, *home, Mark::of(*hash), |_| true);
        }
    }

    /// The row of which the hash is known and which `is` the one, or [`NO_ROW`]. Few others are asked about.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> u32 {
        match self.directory.find(hash) {
            Some(partition) => {
                let mark = Mark::of(hash);
                find(&partition.lines, partition.home(mark), mark, is)
            }
            None => NO_ROW,
        }
    }

    /// Adds a row that is not there. `hash_of_row` tells the hash of another one.
    pub(crate) fn insert(&mut self, hash: u64, row: u32, hash_of_row: impl Fn(u32) -> u64) {
        let lines = &mut self.lines;
        self.directory.begin(|| {
            let first = Partition::with_room(0, 0, 0);
            *lines += first.lines.len();
            first
        });
        let mut number = self.directory.number_of(hash);
        while self.directory.partition_mut(number).is_full() {
            if !self.split(number, hash, &hash_of_row) {
                break;
            }
            number = self.directory.number_of(hash);
        }
        let partition = self.directory.partition_mut(number);
        if !partition.has_room() {
            #[cfg(test)]
            {
                self.moved += partition.rows as usize;
            }
            let before = partition.lines.len();
            partition.grow();
            self.lines += partition.lines.len() - before;
        }
        partition.push(row, Mark::of(hash));
    }

    /// Forgets a row that is there.
    pub(crate) fn remove(&mut self, hash: u64, row: u32) {
        let number = self.directory.number_of(hash);
        self.directory.partition_mut(number).remove(Mark::of(hash), row);
    }

    /// Gives a row that is there another number.
    pub(crate) fn renumber(&mut self, hash: u64, from: u32, to: u32) {
        let number = self.directory.number_of(hash);
        let partition = self.directory.partition_mut(number);
        let mut at = partition.home(Mark::of(hash));
        loop {
            if let Some(row) = partition.lines[at].rows.iter_mut().find(|row| **row == from) {
                *row = to;
                return;
            }
            at = partition.after(at);
        }
    }

    /// Splits a partition by the next bit of its hashes, one of which is `hash`; or does not, and then it grows instead: see
    /// [`Directory::can_split`].
    fn split(&mut self, number: u32, hash: u64, hash_of_row: impl Fn(u32) -> u64) -> bool {
        let depth = self.directory.partition_mut(number).depth;
        if !self.directory.can_split(depth) {
            return false;
        }
        let partition = self.directory.partition_mut(number);
        let (old, rows) = (std::mem::take(&mut partition.lines), partition.rows);
        // All rows are asked for before any entry moves, so that their cache misses overlap.
        let mut ones = vec![0_u16; old.len()];
        for (line, ones) in old.iter().zip(&mut ones) {
            for (lane, row) in line.rows.iter().enumerate().filter(|(_, row)| **row != NO_ROW) {
                *ones |= u16::from(half_of(hash_of_row(*row), depth) == 1) << lane;
            }
        }
        let upper: u32 = ones.iter().map(|ones| ones.count_ones()).sum();
        let prefix = lower_half(hash, depth);
        let mut halves = [
            Partition::with_room(rows - upper, prefix, depth + 1),
            Partition::with_room(upper, prefix | 1, depth + 1),
        ];
        for (line, ones) in old.iter().zip(ones) {
            for lane in 0..line.len() {
                halves[usize::from(ones >> lane & 1)].push(line.rows[lane], line.mark(lane));
            }
        }
        // The halves may have fewer lines than the whole had room for.
        self.lines += halves.iter().map(|half| half.lines.len()).sum::<usize>();
        self.lines -= old.len();
        let [lower, upper] = halves;
        *self.directory.partition_mut(number) = lower;
        self.directory.add_half(depth, prefix | 1, upper);
        #[cfg(test)]
        {
            self.moved += rows as usize;
        }
        true
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lines * size_of::<Line>() + self.directory.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
