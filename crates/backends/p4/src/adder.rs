//! The control `Adder` of `program/adder.p4`, with the entries of its tables, which are those of
//! [`FloatTables`](libra_dataplane::FloatTables) in the form that the program has them in.
//!
//! The program keeps a logarithm with 23 bits behind the point, 127 above what it is, in a word: the exponent of a float is its whole part
//! where it is, so that `epo` needs no table. Differences of logarithms are keys by prefixes, as neighbours share an entry.

use std::ops::Range;
use std::sync::LazyLock;

use libra_dataplane::FLOAT_TABLES;

/// From 15 bits behind the point, in the terms of the logarithm of a mantissa, to those of the program.
const TERM_SHIFT: u32 = 8;
/// From 8 bits behind the point, in a logarithm that is rounded. The bits below them are cut off.
const LOG_SHIFT: u32 = 15;
const HALF: u32 = 1 << (LOG_SHIFT - 1);
const ROUNDED: u32 = !((1 << LOG_SHIFT) - 1);
/// The implied one before the 11 bits of a fraction that are a key.
const IMPLIED: usize = 1 << 11;
/// Of a logarithm that is 127 above what it is.
const BIAS: u16 = 127;
/// The bit of a key of `mi` that is set if signs differ; the others are θ.
const SIGNS_DIFFER: usize = 1 << 15;

const SIGN: u32 = 1 << 31;
const MAGNITUDE: u32 = SIGN - 1;
const INFINITY: u32 = 0xff << 23;

/// Change that `mi` makes to the logarithm of the larger summand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Adds this, wrapping.
    By(u32),
    /// The sum is nothing.
    Cancel,
}

/// Keys that begin with the same bits, and their entry.
#[derive(Debug, Clone, Copy)]
pub struct Prefix<T> {
    /// The bits that the keys have in common.
    pub key: u16,
    /// One for each of these bits.
    pub mask: u16,
    /// The entry of all of these keys.
    pub entry: T,
}

/// The tables of an adder.
#[derive(Debug)]
pub struct Adder {
    /// By 11 bits of a fraction: the logarithm of the mantissa, with what makes cutting off rounding, and that of the mantissa times ln 2, negative.
    pub log_m: Vec<(u32, u16)>,
    /// By the 12 bits after those: their logarithm.
    pub log_d: Vec<u16>,
    /// By the difference of the two: what those bits add to the logarithm of the mantissa. Nothing where no prefix is.
    pub exp: Vec<Prefix<u32>>,
    /// By θ, for the same signs and for different ones: what a summand changes of a logarithm. Nothing where no prefix is.
    pub mi: [Vec<Prefix<Change>>; 2],
    /// By the 8 bits of a logarithm behind the point: the fraction of its power, where a float has it, and what it carries.
    pub float: Vec<u32>,
}

/// A table of the data plane by the paper's name for it.
fn table(name: &str) -> &'static [u16] {
    let (_, entries) = FLOAT_TABLES
        .tables()
        .into_iter()
        .find(|(found, _)| *found == name)
        .expect("these are the names of the tables of the data plane");
    entries
}

impl Adder {
    /// That of the program: the same for every lane.
    pub fn of_program() -> &'static Self {
        static ADDER: LazyLock<Adder> = LazyLock::new(Adder::new);
        &ADDER
    }

    fn new() -> Self {
        let mantissas = table("log_m").iter().zip(table("log_m_ln2")).skip(IMPLIED);
        Self {
            log_m: mantissas
                .map(|(log, scale)| ((u32::from(*log) << TERM_SHIFT) + HALF, scale.wrapping_neg()))
                .collect(),
            log_d: table("log_d").to_vec(),
            exp: exp(),
            mi: [mi(0), mi(SIGNS_DIFFER)],
            float: table("float")[..1 << 8]
                .iter()
                .map(|upper| u32::from(upper - (BIAS << 8)) << LOG_SHIFT)
                .collect(),
        }
    }

    /// The sum of two floats by their bits, the second of which is finite.
    pub fn add(&self, sum: u32, value: u32) -> u32 {
        let (of_sum, of_value) = (sum & MAGNITUDE, value & MAGNITUDE);
        let (large, small) = (of_sum.max(of_value), of_sum.min(of_value));
        let sign = if large == of_sum { sum & SIGN } else { value & SIGN };
        let differ = sum & SIGN != value & SIGN;
        let log = self.log(large);
        let theta = log.saturating_sub(self.log(small));
        let change = found(&self.mi[usize::from(differ)], bits(theta, 15..31)).unwrap_or(Change::By(0));
        let changed = match change {
            Change::By(by) => log.wrapping_add(by),
            Change::Cancel => log,
        };
        let power = (changed & INFINITY).wrapping_add(self.float[usize::from(bits(changed, 15..23))]);
        match (bits(large, 23..31), bits(small, 23..31), bits(changed, 23..32)) {
            (0, _, _) if differ => 0,
            (0, _, _) => sign,
            (_, 0, _) | (0xff, _, _) => sign | large,
            _ if differ && large == small || change == Change::Cancel => 0,
            (_, _, 0xff | 0x100) => sign | INFINITY,
            (_, _, 0 | 0x101..) => sign,
            _ => sign | power,
        }
    }

    /// The logarithm of a normal number without its sign.
    fn log(&self, number: u32) -> u32 {
        let (log, scale) = self.log_m[usize::from(bits(number, 12..23))];
        let difference = self.log_d[usize::from(bits(number, 0..12))].wrapping_add(scale);
        let term = found(&self.exp, difference).unwrap_or(0);
        (number & INFINITY).wrapping_add(log).wrapping_add(term) & ROUNDED
    }
}

/// A slice of a word, of at most 16 bits.
fn bits(word: u32, slice: Range<u32>) -> u16 {
    let mask = u32::MAX >> (u32::BITS - (slice.end - slice.start));
    u16::try_from((word >> slice.start) & mask).expect("a key has at most 16 bits")
}

fn found<T: Copy>(prefixes: &[Prefix<T>], key: u16) -> Option<T> {
    prefixes.iter().find(|prefix| key & prefix.mask == prefix.key).map(|prefix| prefix.entry)
}

fn exp() -> Vec<Prefix<u32>> {
    let (exp, signed) = (table("exp"), |log: &u16| i32::from(log.cast_signed()));
    let rests = table("log_d").iter().skip(1).map(signed);
    let scales = table("log_m_ln2").iter().skip(IMPLIED).map(signed);
    let least = rests.clone().min().zip(scales.clone().max()).map_or(0, |(rest, scale)| rest - scale);
    let most = rests.max().zip(scales.min()).map_or(0, |(rest, scale)| rest - scale);
    // A key is 16 bits of two's complement.
    let key = |log: i32| (log & 0xffff).cast_unsigned() as usize;
    prefixes(key(least)..key(most) + 1, |key| exp[key], |term| u32::from(term) << TERM_SHIFT)
}

fn mi(signs: usize) -> Vec<Prefix<Change>> {
    /// Entry of the data plane for numbers that cancel.
    const CANCELLED: i16 = i16::MIN;
    let mi = table("mi");
    prefixes(
        0..SIGNS_DIFFER,
        |theta| mi[theta | signs],
        |change| match change.cast_signed() {
            CANCELLED => Change::Cancel,
            change => Change::By((i32::from(change) << LOG_SHIFT).cast_unsigned()),
        },
    )
}

/// Keys with their entries, but for those that are zero: these are what a table has by default.
fn prefixes<T: Copy>(
    keys: Range<usize>,
    entry: impl Fn(usize) -> u16,
    made: impl Fn(u16) -> T,
) -> Vec<Prefix<T>> {
    let mut prefixes = Vec::new();
    for (keys, entry) in runs(keys, entry) {
        prefixes.extend(prefixes_of(keys).map(|(key, mask)| Prefix { key, mask, entry: made(entry) }));
    }
    prefixes
}

/// Neighbouring keys that share an entry other than zero, with it.
fn runs(keys: Range<usize>, entry: impl Fn(usize) -> u16) -> Vec<(Range<usize>, u16)> {
    let mut runs: Vec<(Range<usize>, u16)> = Vec::new();
    for key in keys {
        match runs.last_mut() {
            Some((run, of_run)) if run.end == key && *of_run == entry(key) => run.end += 1,
            _ if entry(key) == 0 => {}
            _ => runs.push((key..key + 1, entry(key))),
        }
    }
    runs
}

/// The fewest prefixes of 16 bits that are these keys together, each with its mask.
fn prefixes_of(keys: Range<usize>) -> impl Iterator<Item = (u16, u16)> {
    let mut first = keys.start;
    core::iter::from_fn(move || {
        let left = keys.end.checked_sub(first).filter(|left| *left > 0)?;
        let aligned = if first == 0 { 16 } else { first.trailing_zeros() };
        let bits = aligned.min(left.ilog2());
        let key = u16::try_from(first).expect("a key has 16 bits");
        first += 1 << bits;
        Some((key, u16::MAX.checked_shl(bits).unwrap_or(0)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_all_keys_of_a_run_and_no_other() {
        for (start, end) in [(0, 1), (0, 65_536), (5, 5), (3, 100), (61_440, 62_857), (1, 65_535)] {
            let prefixes: Vec<_> = prefixes_of(start..end).collect();
            for key in 0..=u16::MAX {
                let hits = prefixes.iter().filter(|&&(prefix, mask)| key & mask == prefix).count();
                let is_wanted = (start..end).contains(&usize::from(key));
                assert_eq!(hits, usize::from(is_wanted), "{key} of {start}..{end}");
            }
        }
    }

    fn agrees(sum: u32, value: u32) {
        let (found, right) = (Adder::of_program().add(sum, value), FLOAT_TABLES.add(sum, value));
        assert_eq!(found, right, "{sum:#010x} + {value:#010x}: {found:#010x}, should be {right:#010x}");
    }

    #[test]
    fn every_mantissa_and_rest_has_the_logarithm_of_the_data_plane() {
        for fraction in 0..1 << 11 {
            agrees(0x3f80_0000 | fraction << 12 | 0x555, 0xbf12_3456);
        }
        for rest in 0..1 << 12 {
            agrees(0x4001_2000 | rest, 0x3f80_0000);
        }
    }

    #[test]
    fn edges_are_as_in_the_data_plane() {
        let magnitudes = [
            0,
            1,
            0x007f_ffff,
            0x0080_0000,
            0x0080_0001,
            0x00ff_ffff,
            0x0100_0000,
            0x3f7f_ffff,
            0x3f80_0000,
            0x3f80_0001,
            0x7e80_0000,
            0x7eff_ffff,
            0x7f00_0000,
            0x7f7f_ffff,
        ];
        for sum in magnitudes.into_iter().chain([INFINITY]) {
            for value in magnitudes {
                for (of_sum, of_value) in [(0, 0), (0, SIGN), (SIGN, 0), (SIGN, SIGN)] {
                    agrees(sum | of_sum, value | of_value);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn it_adds_as_the_data_plane_does(sum in any::<u32>(), value in any::<u32>(), near in -12_i32..12) {
            let finite = |bits: u32| if bits & INFINITY == INFINITY { bits & !(1 << 30) } else { bits };
            agrees(finite(sum), finite(value));
            // Exponents that are near, where both summands count.
            let exponent = ((sum >> 23 & 0xff).cast_signed() + near).clamp(0, 254).cast_unsigned();
            agrees(finite(sum), value & !INFINITY | exponent << 23);
        }
    }
}
