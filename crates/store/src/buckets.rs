//! Narrow rows, found by hash in one step: each lies in a bucket that follows from its key.
//!
//! ```text
//!  hash │ prefix .. │ .. low half │
//!          │               └──► bucket of the partition: one or two cache lines of rows, each key and payload
//!          └──► directory ──► partition ──► pages of buckets
//! ```
//!
//! A row for which its bucket has no room lies in one of the next, and its own bucket has a bit for how far: so a look-up waits for
//! the memory of two buckets at most, nearly always, and of one where there is no row.
//!
//! A partition has pages of one size, so that memory that one leaves fits any other. It grows by a page, and splits in two
//! when it has many ([`Directory`]); then its rows move. Rows that are removed move no others.

mod pages;
mod shape;

use std::mem::size_of;

use prefetch_index::prefetch_index;

use crate::directory::{Directory, half_of, hash_of, lower_half};
use crate::key::{FREE, KEY_WORDS, number_at, words_of};
use pages::{FREE_PAGE, Pages};
pub(crate) use shape::BucketPlace;
use shape::{FAR, PAGE_WORDS, ROW_WORDS_MAX, Shape};
use shape::{bit_of, distances, place, word_of};

/// Words of a cache line.
const LINE_WORDS: usize = 16;
/// Pages of a partition, unless keys were chosen to collide.
const PARTITION_PAGES_MAX: usize = 15;

/// The rows of one table.
#[derive(Debug, Clone)]
pub(crate) struct Buckets {
    shape: Shape,
    directory: Directory<Partition>,
    pages: Pages,
    rows: usize,
    /// Number of times that rows were moved.
    moves: u64,
}

/// The rows whose hashes begin with the same `depth` bits.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct Partition {
    /// Number of its pages. With the first of them it is all that a look-up needs, in one cache line.
    count: u32,
    first: [u32; PARTITION_PAGES_MAX],
    /// Those after the first ones.
    more: Vec<u32>,
    rows: u32,
    /// It splits when it has more rows.
    limit: u32,
    /// It grows when it has so many rows more than partitions that grow first.
    ahead: u32,
    depth: u32,
    /// No row is farther from the bucket that follows from its key.
    reach: usize,
}

/// Rows on their way from one place to another.
#[derive(Debug, Default)]
struct Gathered {
    words: Vec<u32>,
    /// [`Moves::leave`] of each row, if anyone is told.
    noted: Vec<bool>,
}

/// What is told about rows that move from a position to another: first all of them leave, then all arrive.
pub(crate) trait Moves {
    /// A row leaves. Returns what its arrival is to be told.
    fn leave(&mut self, position: usize, key: u64, payload: &[u32]) -> bool;
    /// A row arrives.
    fn arrive(&mut self, position: usize, noted: bool);
}

/// Calls a function for the words of a bucket and of a row, which the compiler then knows.
macro_rules! for_shape {
    ($shape:expr, $self:ident.$function:ident($($argument:expr),*)) => {
        match $shape.row {
            3 => $self.$function::<16, 3>($($argument),*),
            4 => $self.$function::<32, 4>($($argument),*),
            5 => $self.$function::<32, 5>($($argument),*),
            6 => $self.$function::<32, 6>($($argument),*),
            _ => unreachable!("checked when the table was made"),
        }
    };
}

impl Partition {
    /// One without pages. Partitions neither grow nor split all at one number of rows: if they did, all would at about the same number
    /// of rows in the table, and pushes would be slow whenever it comes.
    fn empty(prefix: u64, depth: u32, shape: &Shape) -> Self {
        let quarter = (shape.room(PARTITION_PAGES_MAX) / 4) as u64;
        let random = hash_of(prefix << 8 | u64::from(depth));
        let limit = 3 * quarter + random % quarter;
        let limit = u32::try_from(limit).expect("at most the rows of PARTITION_PAGES_MAX");
        let ahead = ((random >> 32) * (shape.room(1) / 2) as u64) >> 32;
        let ahead = u32::try_from(ahead).expect("at most half of the rows of a page");
        let first = [0; PARTITION_PAGES_MAX];
        Self { count: 0, first, more: Vec::new(), rows: 0, limit, ahead, depth, reach: 0 }
    }

    /// Number of rows that it may have before it grows.
    #[inline]
    fn room(&self, shape: &Shape) -> usize {
        let even = shape.room(self.len()) + self.ahead as usize;
        even.saturating_sub(shape.room(1) / 4).min(shape.room_max(self.len()))
    }

    /// Number of its pages.
    #[inline]
    fn len(&self) -> usize {
        self.count as usize
    }

    /// The page at a position of its list.
    #[inline]
    fn page(&self, at: usize) -> u32 {
        if at < PARTITION_PAGES_MAX { self.first[at] } else { self.more[at - PARTITION_PAGES_MAX] }
    }

    fn push(&mut self, page: u32) {
        match self.first.get_mut(self.count as usize) {
            Some(free) => *free = page,
            None => self.more.push(page),
        }
        self.count += 1;
    }

    fn pages(&self) -> impl DoubleEndedIterator<Item = u32> {
        (0..self.len()).map(|at| self.page(at))
    }
}

impl Buckets {
    /// No rows yet, each of which will have a payload of so many words.
    pub(crate) fn new(payload_words: usize) -> Self {
        Self {
            shape: Shape::new((KEY_WORDS + payload_words).min(ROW_WORDS_MAX)),
            directory: Directory::default(),
            pages: Pages::default(),
            rows: 0,
            moves: 0,
        }
    }

    /// Returns true if rows of so many words lie in buckets.
    pub(crate) fn suit(payload_words: usize) -> bool {
        payload_words > 0 && KEY_WORDS + payload_words <= ROW_WORDS_MAX
    }

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Returns the number of times that rows were moved.
    #[inline]
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// The buckets where the rows of keys are looked for first, if there are rows. Asks for their memory.
    ///
    /// In steps for all keys, as each waits for what the one before it has read from memory or caches.
    #[inline]
    pub(crate) fn homes<const N: usize>(&self, keys: &[u64], homes: &mut [BucketPlace; N]) -> bool {
        let mut hashes = [0; N];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = hash_of(*key);
        }
        let mut partitions = [None; N];
        for (partition, hash) in partitions.iter_mut().zip(&hashes).take(keys.len()) {
            *partition = self.directory.find(*hash);
        }
        for ((home, hash), partition) in homes.iter_mut().zip(&hashes).zip(partitions).take(keys.len()) {
            let Some(partition) = partition else { return false };
            let (page, start) = self.shape.home(*hash, partition.len());
            *home = place(partition.page(page), start);
        }
        for home in homes.iter().take(keys.len()) {
            self.prefetch(self.pages.words(home.page), home.start as usize);
        }
        true
    }

    #[inline]
    fn prefetch(&self, words: &[u32; PAGE_WORDS], start: usize) {
        prefetch_index(words.as_slice(), start);
        if 1 << self.shape.bucket_log2 > LINE_WORDS {
            prefetch_index(words.as_slice(), start + LINE_WORDS);
        }
    }

    /// Looks for the rows of keys in the buckets that [`Buckets::homes`] told. It calls `found` with the position of each key, the place
    /// of its row and whether the row is there.
    #[inline(always)]
    pub(crate) fn in_homes(
        &self,
        homes: impl Iterator<Item = (u64, BucketPlace)>,
        found: impl FnMut(usize, BucketPlace, bool),
    ) {
        for_shape!(self.shape, self.in_homes_of(homes, found));
    }

    #[inline(always)]
    fn in_homes_of<const BUCKET: usize, const ROW: usize>(
        &self,
        homes: impl Iterator<Item = (u64, BucketPlace)>,
        mut found: impl FnMut(usize, BucketPlace, bool),
    ) {
        for (at, (key, home)) in homes.enumerate() {
            let word = word_of::<BUCKET, ROW>(&self.pages.words(home.page)[home.start as usize..], key);
            #[expect(clippy::cast_possible_truncation, reason = "it is in a page")]
            let place = BucketPlace { page: home.page, start: home.start + word as u32 };
            found(at, place, word < BUCKET);
        }
    }

    /// Asks for the memory of the buckets that have rows for which this one had no room, and of the next one if it has none for another.
    #[inline]
    pub(crate) fn prefetch_displaced(&self, key: u64, home: BucketPlace) {
        let words = self.pages.words(home.page);
        let bucket = 1 << self.shape.bucket_log2;
        let start = home.start as usize;
        if number_at(words, start + (self.shape.lanes - 1) * self.shape.row) != FREE
            && start + bucket < PAGE_WORDS
        {
            self.prefetch(words, start + bucket);
        }
        for distance in distances(words[start + bucket - 1]) {
            let (words, start) = match start + distance * bucket {
                start if start < PAGE_WORDS => (words, start),
                _ => {
                    let hash = hash_of(key);
                    let Some(partition) = self.directory.find(hash) else { return };
                    let home = self.shape.home(hash, partition.len());
                    let (page, start) = self.shape.after(home, distance, partition.len());
                    (self.pages.words(partition.page(page)), start)
                }
            };
            self.prefetch(words, start);
        }
    }

    /// Finds the row of a key that is not in its bucket, which [`Buckets::homes`] told.
    #[inline]
    pub(crate) fn find_displaced(&self, key: u64, home: BucketPlace) -> Option<BucketPlace> {
        for_shape!(self.shape, self.find_displaced_of(key, home))
    }

    #[inline(always)]
    fn find_displaced_of<const BUCKET: usize, const ROW: usize>(
        &self,
        key: u64,
        home: BucketPlace,
    ) -> Option<BucketPlace> {
        let words = self.pages.words(home.page);
        let start = home.start as usize;
        for distance in distances(words[start + BUCKET - 1]) {
            let at = start + distance * BUCKET;
            if at >= PAGE_WORDS || distance == FAR {
                return self.find_of::<BUCKET, ROW>(key);
            }
            let word = word_of::<BUCKET, ROW>(&words[at..], key);
            if word < BUCKET {
                return Some(place(home.page, at + word));
            }
        }
        None
    }

    /// Finds a row.
    pub(crate) fn find(&self, key: u64) -> Option<BucketPlace> {
        for_shape!(self.shape, self.find_of(key))
    }

    #[inline(always)]
    fn find_of<const BUCKET: usize, const ROW: usize>(&self, key: u64) -> Option<BucketPlace> {
        let hash = hash_of(key);
        let partition = self.directory.find(hash)?;
        let pages = partition.len();
        let home = self.shape.home(hash, pages);
        let look = |(page, start): (usize, usize)| {
            let page = partition.page(page);
            let bucket = &self.pages.words(page)[start..][..BUCKET];
            let word = word_of::<BUCKET, ROW>(bucket, key);
            ((word < BUCKET).then(|| place(page, start + word)), bucket[BUCKET - 1])
        };
        let (found, far) = look(home);
        if found.is_some() || far == u32::MAX {
            return found;
        }
        for distance in distances(far) {
            let end = if distance < FAR { distance } else { partition.reach };
            let mut places = (distance..=end).map(|distance| look(self.shape.after(home, distance, pages)).0);
            if let Some(found) = places.find_map(|found| found) {
                return Some(found);
            }
        }
        None
    }

    /// Makes a row that is not there; `fill` gets its words, all zero. `moved` is told of rows that move for it.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        key: u64,
        fill: impl FnOnce(&mut [u32]),
        moved: Option<&mut dyn Moves>,
    ) -> BucketPlace {
        let hash = hash_of(key);
        let shape = self.shape;
        self.directory.begin(|| Partition::empty(0, 0, &shape));
        let mut number = self.directory.number_of(hash);
        let partition = self.directory.partition_mut(number);
        if partition.rows >= partition.limit || partition.rows as usize >= partition.room(&shape) {
            self.make_room(hash, moved);
            number = self.directory.number_of(hash);
        }
        let place = for_shape!(self.shape, self.free_place(number, hash));
        self.rows += 1;
        let row = &mut self.pages.words_mut(place.page)[place.start as usize..][..shape.row];
        row[..KEY_WORDS].copy_from_slice(&words_of(key));
        row[KEY_WORDS..].fill(0);
        fill(&mut row[KEY_WORDS..]);
        place
    }

    /// The first place without a row where the probe for a hash comes by.
    #[inline(always)]
    fn free_place<const BUCKET: usize, const ROW: usize>(&mut self, number: u32, hash: u64) -> BucketPlace {
        let partition = self.directory.partition_mut(number);
        partition.rows += 1;
        let pages = partition.len();
        let home = self.shape.home(hash, pages);
        let mut distance = 0;
        loop {
            let (page, start) = self.shape.after(home, distance, pages);
            let page = partition.page(page);
            let word = word_of::<BUCKET, ROW>(&self.pages.words(page)[start..], FREE);
            if word < BUCKET {
                if distance > 0 {
                    partition.reach = partition.reach.max(distance);
                    let home_page = partition.page(home.0);
                    self.pages.words_mut(home_page)[home.1 + BUCKET - 1] &= !bit_of(distance);
                }
                return place(page, start + word);
            }
            distance += 1;
        }
    }

    /// Makes room for another row of a hash in its partition, which has too little.
    #[cold]
    fn make_room(&mut self, hash: u64, mut moved: Option<&mut dyn Moves>) {
        loop {
            let number = self.directory.number_of(hash);
            let partition = self.directory.partition_mut(number);
            let (rows, pages) = (partition.rows as usize, partition.len());
            let room = partition.room(&self.shape);
            if partition.rows >= partition.limit && self.split(number, hash, &mut moved) {
                continue;
            }
            if rows < room {
                return;
            }
            // In proportion, where keys were chosen to collide.
            self.grow(number, pages + 1 + pages / 16, &mut moved);
        }
    }

    /// Gives a partition more pages.
    fn grow(&mut self, number: u32, pages: usize, moved: &mut Option<&mut dyn Moves>) {
        self.moves += 1;
        let [rows, _] = for_shape!(self.shape, self.gather(number, None, moved));
        while self.directory.partition_mut(number).len() < pages {
            let page = self.pages.take();
            self.directory.partition_mut(number).push(page);
        }
        for_shape!(self.shape, self.scatter(number, &rows, moved));
    }

    /// Splits a partition by the next bit of its hashes, one of which is `hash`; or does not, and then it grows instead: see
    /// [`Directory::can_split`].
    fn split(&mut self, number: u32, hash: u64, moved: &mut Option<&mut dyn Moves>) -> bool {
        let depth = self.directory.partition_mut(number).depth;
        if !self.directory.can_split(depth) {
            return false;
        }
        self.moves += 1;
        let halves = for_shape!(self.shape, self.gather(number, Some(depth), moved));
        let prefix = lower_half(hash, depth);
        let lower = Partition::empty(prefix, depth + 1, &self.shape);
        let old = std::mem::replace(self.directory.partition_mut(number), lower);
        self.pages.free.extend(old.pages().rev());
        let upper = Partition::empty(prefix | 1, depth + 1, &self.shape);
        let upper = self.directory.add_half(depth, prefix | 1, upper);
        for (rows, number) in halves.iter().zip([number, upper]) {
            let partition = self.directory.partition_mut(number);
            let count = rows.words.len() / self.shape.row;
            while count >= partition.room(&self.shape) {
                partition.push(self.pages.take());
            }
            for_shape!(self.shape, self.scatter(number, rows, moved));
        }
        true
    }

    /// Takes all rows out of a partition, all of them or by their halves if it splits at a depth. Its pages have none then.
    fn gather<const BUCKET: usize, const ROW: usize>(
        &mut self,
        number: u32,
        splits: Option<u32>,
        moved: &mut Option<&mut dyn Moves>,
    ) -> [Gathered; 2] {
        let Self { shape, directory, pages, .. } = self;
        let partition = directory.partition_mut(number);
        let mut halves = [Gathered::default(), Gathered::default()];
        halves[0].words.reserve(partition.rows as usize * ROW);
        for page in partition.pages() {
            let words = pages.words_mut(page);
            for (bucket, rows) in words.as_chunks::<BUCKET>().0.iter().enumerate() {
                for (lane, row) in rows[..BUCKET - 1].as_chunks::<ROW>().0.iter().enumerate() {
                    let key = number_at(row, 0);
                    if key == FREE {
                        continue;
                    }
                    let half = splits.map_or(0, |depth| half_of(hash_of(key), depth));
                    halves[half].words.extend_from_slice(row);
                    if let Some(moved) = moved {
                        let position = page as usize * shape.places() + bucket * shape.lanes + lane;
                        let noted = moved.leave(position, key, &row[KEY_WORDS..]);
                        halves[half].noted.push(noted);
                    }
                }
            }
            *words = FREE_PAGE;
        }
        halves
    }

    /// Puts rows into a partition, whose pages have none and have room for them.
    fn scatter<const BUCKET: usize, const ROW: usize>(
        &mut self,
        number: u32,
        gathered: &Gathered,
        moved: &mut Option<&mut dyn Moves>,
    ) {
        let Self { shape, directory, pages, .. } = self;
        let partition = directory.partition_mut(number);
        let buckets = partition.len() * shape.buckets();
        let mut counts = vec![0_u8; buckets];
        let mut reach = 0;
        let rows = gathered.words.as_chunks::<ROW>().0;
        for (at, row) in rows.iter().enumerate() {
            let home = shape.home(hash_of(number_at(row, 0)), partition.len());
            let home_bucket = (home.0 * PAGE_WORDS + home.1) / BUCKET;
            let (mut bucket, mut distance) = (home_bucket, 0);
            while usize::from(counts[bucket]) == (BUCKET - 1) / ROW {
                bucket = if bucket + 1 == buckets { 0 } else { bucket + 1 };
                distance += 1;
            }
            if distance > 0 {
                reach = reach.max(distance);
                pages.words_mut(partition.page(home.0))[home.1 + BUCKET - 1] &= !bit_of(distance);
            }
            let (page, start) = shape.split(bucket);
            let page = partition.page(page);
            let start = start + usize::from(counts[bucket]) * ROW;
            pages.words_mut(page)[start..start + ROW].copy_from_slice(row);
            counts[bucket] += 1;
            if let Some(moved) = moved {
                moved.arrive(shape.position(place(page, start)), gathered.noted[at]);
            }
        }
        partition.rows = u32::try_from(rows.len()).expect("a table has fewer than 2^32 rows");
        partition.reach = reach;
    }

    /// Removes a row, if it is there. No other one moves.
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let Some(place) = self.find(key) else { return false };
        self.pages.words_mut(place.page)[place.start as usize..][..KEY_WORDS]
            .copy_from_slice(&words_of(FREE));
        let number = self.directory.number_of(hash_of(key));
        self.directory.partition_mut(number).rows -= 1;
        self.rows -= 1;
        self.forget_distance(hash_of(key), place);
        true
    }

    /// A row of a hash was at this place: its bucket need not know of it, if it has no other one in the same bucket.
    fn forget_distance(&mut self, hash: u64, place: BucketPlace) {
        let shape = self.shape;
        let partition = self.directory.find(hash).expect("it has a row");
        let (pages, home) = (partition.len(), shape.home(hash, partition.len()));
        let home_page = partition.page(home.0);
        let last = home.1 + (1 << shape.bucket_log2) - 1;
        let start = place.start as usize >> shape.bucket_log2 << shape.bucket_log2;
        let is_at = |distance: &usize| {
            let (page, at) = shape.after(home, *distance, pages);
            *distance < FAR && (partition.page(page), at) == (place.page, start)
        };
        let Some(distance) = distances(self.pages.words(home_page)[last]).find(is_at) else { return };
        let bucket = &self.pages.words(place.page)[start..];
        let has_home = |lane: usize| {
            let key = number_at(bucket, lane * shape.row);
            key != FREE && shape.home(hash_of(key), pages) == home
        };
        if !(0..shape.lanes).any(has_home) {
            self.pages.words_mut(home_page)[last] |= bit_of(distance);
        }
    }

    /// The payload of a row.
    #[inline]
    pub(crate) fn payload(&self, place: BucketPlace) -> &[u32] {
        &self.pages.words(place.page)[place.start as usize..][KEY_WORDS..self.shape.row]
    }

    /// The payload of a row.
    #[inline]
    pub(crate) fn payload_mut(&mut self, place: BucketPlace) -> &mut [u32] {
        &mut self.pages.words_mut(place.page)[place.start as usize..][KEY_WORDS..self.shape.row]
    }

    /// Returns the position of a row among all places that there are.
    #[inline]
    pub(crate) fn position(&self, place: BucketPlace) -> usize {
        self.shape.position(place)
    }

    /// Returns the number of places that there are, most of which have rows.
    pub(crate) fn positions(&self) -> usize {
        self.pages.len() * self.shape.places()
    }

    /// Key and payload of the row at a position, if there is one.
    pub(crate) fn row_at(&self, position: usize) -> Option<(u64, &[u32])> {
        let (page, within) = (position / self.shape.places(), position % self.shape.places());
        let (bucket, lane) = (within / self.shape.lanes, within % self.shape.lanes);
        let page = u32::try_from(page).expect("positions are below those of all pages");
        let start = (bucket << self.shape.bucket_log2) + lane * self.shape.row;
        let row = &self.pages.words(page)[start..][..self.shape.row];
        let key = number_at(row, 0);
        (key != FREE).then_some((key, &row[KEY_WORDS..]))
    }

    /// Keys and payloads of all rows, in the order in which they lie.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u32])> {
        let pages = self.pages.numbers().map(|page| self.pages.words(page));
        let buckets = pages.flat_map(|page| page.chunks_exact(1 << self.shape.bucket_log2));
        let rows = buckets.flat_map(|bucket| bucket[..bucket.len() - 1].chunks_exact(self.shape.row));
        rows.map(|row| (number_at(row, 0), &row[KEY_WORDS..])).filter(|(key, _)| *key != FREE)
    }

    /// Bytes that they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let lists: usize = self.directory.partitions().map(|partition| partition.more.capacity()).sum();
        self.pages.memory_bytes() + lists * size_of::<u32>() + self.directory.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
