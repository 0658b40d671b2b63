//! Rows of a data set that are read, and the order in which an epoch reads them.

use std::ops::Range;

use crate::dataset::Chunk;
use crate::hash::{Random, splitmix64};

/// Pieces of a part, each from another place of the set. With fewer, a part of a sorted set has less of the set's variety; each is read by itself.
const PIECES: u64 = 16;
/// Rows of a section that parts with neighbouring numbers read one after the other. A row group that lies across the end of such a run is read once more.
const RUN_ROWS: u64 = 1 << 20;
/// Rows of a place of a sample, unless there would be fewer places than pieces of a part.
const PLACE_ROWS: u64 = 1 << 12;

/// Rows of a data set, found by number: those of some chunks, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    chunks: Vec<Chunk>,
    /// Rows up to the end of each chunk.
    ends: Vec<u64>,
}

impl Selection {
    /// The rows of chunks, as [`DataSet::chunks`](crate::DataSet::chunks) and [`DataSet::split`](crate::DataSet::split) have them.
    pub fn new(chunks: Vec<Chunk>) -> Self {
        let ends = chunks.iter().scan(0, |end, chunk| {
            *end += chunk.rows;
            Some(*end)
        });
        Self { ends: ends.collect(), chunks }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the rows with numbers in a range, in order.
    pub fn range(&self, rows: Range<u64>) -> Vec<Chunk> {
        let mut found = Vec::new();
        let mut number = self.ends.partition_point(|&end| end <= rows.start);
        let mut start = rows.start;
        while start < rows.end.min(self.rows()) {
            let chunk = self.chunks[number];
            let first = self.ends[number] - chunk.rows;
            let end = self.ends[number].min(rows.end);
            found.push(Chunk { skip: chunk.skip + start - first, rows: end - start, ..chunk });
            (start, number) = (end, number + 1);
        }
        found
    }

    /// Returns so much of the rows, above 0 and at most 1, and at least one row: from places all over the set, which the seed draws. A place is rows that
    /// follow one another, from the start of a chunk on where chunks are small: what is in front of it in its chunk is read as well.
    #[must_use]
    pub fn sample(&self, share: f64, seed: u64) -> Self {
        if share >= 1.0 {
            return self.clone();
        }
        let mut random = Random::new(seed);
        let rows = self.rows();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the rows")]
        let wanted = (rows as f64 * share).ceil() as u64;
        let places = (wanted / PLACE_ROWS).max(PIECES).min(wanted);
        let chunks = (0..places).flat_map(|place| {
            let (start, end) = (fraction(rows, place, places), fraction(rows, place + 1, places));
            let taken = fraction(wanted, end, rows) - fraction(wanted, start, rows);
            let last = end - taken;
            let drawn = start + random.below(last - start + 1);
            let chunk = self.ends.partition_point(|&end| end <= drawn);
            let chunk_start = self.ends[chunk] - self.chunks[chunk].rows;
            let from = if chunk_start >= start { chunk_start } else { drawn };
            self.range(from..from + taken)
        });
        Self::new(chunks.collect())
    }

    /// Returns the least rows of a part that is read without much waste: what is in front of a piece in its chunk is read as well, and dropped.
    pub fn part_rows(&self) -> u64 {
        const PIECE_ROWS: u64 = 1 << 14;
        // The rows of the chunk of a row, on average.
        let squares: u128 = self.chunks.iter().map(|chunk| u128::from(chunk.rows).pow(2)).sum();
        let mean = squares / u128::from(self.rows().max(1));
        PIECES * PIECE_ROWS.max(u64::try_from(mean / 4).unwrap_or(u64::MAX / PIECES))
    }

    /// Returns part `number` of the `parts` of an epoch: pieces of as many rows, each of them rows that follow one another.
    ///
    /// The rows are cut into 16 sections, and each section into a piece for each part; the seed draws which part gets which. So each part has rows
    /// from all over the set, in shares as even as those of the whole even if the set is sorted, and parts follow from numbers of rows alone, whatever the
    /// format.
    ///
    /// Neighbouring parts have neighbouring pieces, in runs of about a million rows of a section, which the seed brings into an order: who reads one part after
    /// the other reads a row group once (see [`Shuffle::go_on`](crate::Shuffle::go_on)). In a section, the seed also draws where the first run begins.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn part(&self, number: u32, parts: u32, seed: u64) -> Vec<Vec<Chunk>> {
        assert!(number < parts, "part {number} of {parts}");
        let run = (u128::from(PIECES * RUN_ROWS) * u128::from(parts) / u128::from(self.rows().max(1)))
            .clamp(1, parts.into());
        let run = u32::try_from(run).expect("at most the parts");
        let (own, last) = (number / run, (parts - 1) / run);
        let piece_of = |section: u64| {
            let mut random = Random::new(seed ^ splitmix64(section));
            let mut runs: Vec<u32> = (0..=last).collect();
            random.shuffle(&mut runs);
            let before = runs.iter().take_while(|it| **it != own);
            let start: u32 = before.map(|&it| if it == last { parts - run * last } else { run }).sum();
            let piece = u64::from(start + number - run * own) + random.below(parts.into());
            let piece = section * u64::from(parts) + piece % u64::from(parts);
            let start = |piece| fraction(self.rows(), piece, PIECES * u64::from(parts));
            self.range(start(piece)..start(piece + 1))
        };
        (0..PIECES).map(piece_of).filter(|piece| !piece.is_empty()).collect()
    }
}

/// Returns so many parts of a whole, of which there are `of`, rounded down.
fn fraction(whole: u64, parts: u64, of: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(parts) / u128::from(of)).expect("at most the whole")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of so many rows each, of which the first row is left out.
    fn selection(rows: &[u64]) -> Selection {
        let chunk = |(group, &rows): (u32, &u64)| Chunk { file: 0, group, skip: 1, rows };
        Selection::new((0..).zip(rows).map(chunk).collect())
    }

    /// The rows of chunks, by number, of chunks of `size` rows.
    fn numbers(chunks: &[Chunk], size: u64) -> Vec<u64> {
        let first = |chunk: &Chunk| u64::from(chunk.group) * size + chunk.skip - 1;
        chunks.iter().flat_map(|chunk| first(chunk)..first(chunk) + chunk.rows).collect()
    }

    #[test]
    fn parts_have_each_row_once_whatever_the_chunks() {
        for parts in [1, 3, 40, 1000] {
            let of = |size: u64| {
                let selection = selection(&vec![size; usize::try_from(5040 / size).unwrap()]);
                let part = |number| selection.part(number, parts, 7);
                (0..parts).map(|number| numbers(&part(number).concat(), size)).collect::<Vec<_>>()
            };
            let found = of(5040);
            let mut all = found.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..5040), "{parts} parts");
            assert!([1, 7, 360].into_iter().all(|size| of(size) == found), "{parts} parts");
            let rows = found.iter().map(Vec::len);
            assert!(rows.clone().max().unwrap() - rows.min().unwrap() <= 16, "{parts} parts");
        }
    }

    #[test]
    fn a_part_has_rows_from_all_over_the_set() {
        let selection = selection(&[100_000]);
        let first_pieces = |seed| selection.part(0, 50, seed).iter().map(|piece| piece[0].skip).collect();
        let (one, other): (Vec<u64>, Vec<u64>) = (first_pieces(1), first_pieces(2));
        assert_ne!(one, other);
        for starts in [one, other] {
            assert!(
                (0..16).zip(&starts).all(|(section, &start)| (start - 1) / 6250 == section),
                "{starts:?}"
            );
        }
    }

    #[test]
    fn neighbouring_parts_go_on_where_one_ended() {
        // 1,024 parts with pieces of 2^16 rows, in runs of 16.
        let selection = selection(&[1 << 20; 1 << 10]);
        let place = |piece: &[Chunk], end: bool| {
            let chunk = if end { piece[piece.len() - 1] } else { piece[0] };
            (u64::from(chunk.group) << 20) + chunk.skip - 1 + if end { chunk.rows } else { 0 }
        };
        let part = |number, seed| selection.part(number, 1024, seed);
        let mut breaks = 0;
        for number in 1..1024 {
            let (before, this) = (part(number - 1, 3), part(number, 3));
            let goes_on =
                |(before, this): &(&Vec<Chunk>, &Vec<Chunk>)| place(before, true) == place(this, false);
            breaks += before.iter().zip(&this).filter(|pair| !goes_on(pair)).count();
        }
        // Between the 64 runs of each section, but where neighbours stay neighbours, and at the end of the section.
        assert!((16 * 60..=16 * 65).contains(&breaks), "{breaks}");
        assert_ne!(part(0, 3), part(0, 4));
    }

    #[test]
    fn a_sample_has_rows_from_all_over_the_set() {
        for sizes in [vec![1000; 100], vec![100_000], vec![1, 99_998, 1], (1..447).collect()] {
            let selection = selection(&sizes);
            let first: Vec<u64> =
                sizes.iter().scan(0, |end, rows| Some(std::mem::replace(end, *end + rows))).collect();
            for share in [0.001, 0.1, 0.5, 0.9999] {
                let sample = selection.sample(share, 3);
                let wanted = selection.rows() as f64 * share;
                assert!((wanted..wanted + 1.0).contains(&(sample.rows() as f64)), "{sizes:?}");
                let place = |chunk: &Chunk| first[chunk.group as usize] + chunk.skip - 1;
                let numbers: Vec<u64> =
                    sample.chunks.iter().flat_map(|chunk| place(chunk)..place(chunk) + chunk.rows).collect();
                assert!(numbers.is_sorted_by(|a, b| a < b), "no row comes twice");
                let sixteenth = |section: u64| selection.rows() * section / 16;
                for section in 0..16 {
                    let own = numbers
                        .iter()
                        .filter(|row| (sixteenth(section)..sixteenth(section + 1)).contains(row));
                    let share = own.count() as f64 / sample.rows() as f64;
                    assert!((0.05..0.075).contains(&share), "{share} of the rows are of section {section}");
                }
            }
        }
        let large = selection(&[100_000]);
        assert_ne!(large.sample(0.1, 3).chunks, large.sample(0.1, 4).chunks);
        assert_eq!(large.sample(1e-9, 3).rows(), 1);
        assert_eq!(large.sample(1.0, 3).chunks, large.chunks);
    }

    #[test]
    fn a_sample_reads_little_of_a_large_set() {
        // A terabyte in groups of 65,536 rows.
        let selection = selection(&vec![1 << 16; 1 << 16]);
        let sample = selection.sample(1e-5, 3);
        assert_eq!((sample.rows(), sample.chunks.len()), (42_950, 16));
        assert!(sample.chunks.iter().all(|chunk| chunk.skip == 1), "from the start of a group on");
        assert_ne!(sample.chunks, selection.sample(1e-5, 4).chunks);
    }

    #[test]
    fn large_chunks_make_large_parts() {
        let part_rows = |rows: &[u64]| selection(rows).part_rows();
        assert_eq!(part_rows(&[1; 100]), 1 << 18);
        assert_eq!(part_rows(&[1 << 16; 100]), 1 << 18);
        assert_eq!(part_rows(&[1 << 20; 100]), 1 << 22);
    }
}
