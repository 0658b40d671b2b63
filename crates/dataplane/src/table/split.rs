//! Our own tables for the addition of floats: the same idea as the paper's, and far less memory.
//!
//! The paper's logarithms spend half of their 16 bits on the exponent, in keys and in entries. But the exponent of a float *is* the part of its logarithm before the
//! point: it needs no table, only an addition beside those that are there. So keys are for what is behind the point, entries have 16 bits
//! for that, and the 7 tables become 4 of N entries each:
//!
//! ```text
//! log[f]       log2 of 1.f, of the highest bits of a fraction
//! same[θ]      log2(1 + 2^-θ)        θ from 0 to 16, the difference of two logarithms: what is smaller than 2^-16 of the other changes nothing
//! differ[θ]    -log2(1 - 2^-θ)
//! exp[l]       the fraction of 2^l
//! ```
//!
//! An entry is right for the middle of the numbers that share its key.

use super::exact::{ONE, ONE_BITS, Powers, log2, rounded};
use super::{Summands, at};
use crate::arithmetic::{FRACTION_BITS, INFINITY, SIGN};

/// Bits of a logarithm behind the point.
const POINT: u32 = 16;
/// Differences of logarithms in the tables are below 2 to the power of this.
const THETA_WHOLE: u32 = 4;
/// Bits behind the point of what a difference takes off: it may be up to 16.
const LOSS_POINT: u32 = 12;
const EXPONENT_MAX: i32 = 255;

/// Four tables of N entries, and the additions that they make possible. N is a power of two, from 2^4 to 2^16.
///
/// The precision of sums of random floats between -1 and 1, as the paper measures it (its second data set), and of their absolute values, median and mean:
///
/// | N | memory | both signs, % | one sign, % |
/// |---|---|---|---|
/// | 256 | 2 KB | 99.581, 97.499 | 99.714, 99.655 |
/// | 1,024 | 8 KB | 99.895, 99.174 | 99.929, 99.914 |
/// | 4,096 | 32 KB | 99.974, 99.756 | 99.982, 99.978 |
/// | 16,384 | 128 KB | 99.993, 99.931 | 99.995, 99.995 |
/// | 65,536 | 512 KB | 99.998, 99.980 | 99.999, 99.999 |
/// | [the paper's seven](super::FloatTables) | 408.5 KB | 99.881, 99.594 | 99.911, 99.897 |
///
/// ```
/// use libra_dataplane::SplitTables;
///
/// let mut tables = SplitTables::<4096>::EMPTY;
/// tables.fill();
/// assert_eq!(size_of_val(&tables), 32 * 1024);
///
/// let sum = f32::from_bits(tables.add(1.5_f32.to_bits(), 2.25_f32.to_bits()));
/// assert!((sum - 3.75).abs() < 0.005, "{sum}");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitTables<const N: usize> {
    log: [u16; N],
    same: [u16; N],
    differ: [u16; N],
    exp: [u16; N],
}

impl<const N: usize> SplitTables<N> {
    /// Bits of a key.
    const KEY_BITS: u32 = {
        assert!(N.is_power_of_two() && N >= 1 << 4 && N <= 1 << 16, "a key has 4 to 16 bits");
        N.trailing_zeros()
    };

    /// Memory for the tables. Nothing can be added before they are [filled](Self::fill).
    pub const EMPTY: Self = Self { log: [0; N], same: [0; N], differ: [0; N], exp: [0; N] };

    /// Computes what is in the tables, with integers alone: the same on every machine.
    pub fn fill(&mut self) {
        // The middle of a key's numbers is a bit more.
        let bits = Self::KEY_BITS.wrapping_add(1);
        let powers = Powers::with_point(bits);
        let thetas = Powers::with_point(bits.wrapping_sub(THETA_WHOLE));
        for (key, entry) in (0_u64..).zip(&mut self.log) {
            let middle = key.wrapping_mul(2).wrapping_add(1).wrapping_shl(ONE_BITS.wrapping_sub(bits));
            *entry = entry_of(log2(ONE.wrapping_add(middle)), POINT);
        }
        for (key, entry) in (0_i32..).zip(&mut self.exp) {
            let fraction = powers.of(key.wrapping_mul(2).wrapping_add(1)).fraction(POINT);
            *entry = u16::try_from(fraction).unwrap_or(u16::MAX);
        }
        for (key, (same, differ)) in (0_i32..).zip(self.same.iter_mut().zip(&mut self.differ)) {
            let small = thetas.of(key.wrapping_mul(2).wrapping_add(1).wrapping_neg()).below_one();
            *same = entry_of(log2(ONE.wrapping_add(small)), POINT);
            *differ = entry_of(log2(ONE.wrapping_sub(small)).wrapping_neg(), LOSS_POINT);
        }
    }

    /// The sum of two floats, given as their bits.
    ///
    /// Zeros, subnormal numbers, infinities and NaN are treated as in [`FloatTables::add`](super::FloatTables::add).
    #[must_use]
    pub fn add(&self, x: u32, y: u32) -> u32 {
        let (large, small) = match Summands::of(x, y) {
            Summands::Normal { large, small } => (large, small),
            Summands::Sum(sum) => return sum,
        };
        let log = self.log(large);
        let theta = log.wrapping_sub(self.log(small)).max(0);
        let key = theta.wrapping_shr(POINT.wrapping_add(THETA_WHOLE).wrapping_sub(Self::KEY_BITS));
        let Ok(key @ 0..=u16::MAX) = u16::try_from(key) else { return large };
        if usize::from(key) >= N {
            return large;
        }
        let sum = if (large ^ small) & SIGN == 0 {
            log.wrapping_add(at(&self.same, key).into())
        } else {
            log.wrapping_sub(i32::from(at(&self.differ, key)).wrapping_shl(POINT - LOSS_POINT))
        };
        let sign = large & SIGN;
        match sum.wrapping_shr(POINT) {
            EXPONENT_MAX.. => sign | INFINITY,
            exponent @ 1.. => {
                let fraction = u32::from(at(&self.exp, Self::key(sum.cast_unsigned(), POINT)));
                sign | exponent.cast_unsigned().wrapping_shl(FRACTION_BITS)
                    | fraction.wrapping_shl(FRACTION_BITS - POINT)
            }
            _ => sign,
        }
    }

    /// The logarithm of a normal number without its sign, with 127 added as in its exponent.
    fn log(&self, number: u32) -> i32 {
        let exponent = (number & !SIGN).wrapping_shr(FRACTION_BITS).wrapping_shl(POINT);
        exponent.cast_signed().wrapping_add(at(&self.log, Self::key(number, FRACTION_BITS)).into())
    }

    /// The highest of the bits behind a point.
    fn key(number: u32, point: u32) -> u16 {
        let behind = number & 1_u32.wrapping_shl(point).wrapping_sub(1);
        u16::try_from(behind.wrapping_shr(point.wrapping_sub(Self::KEY_BITS))).unwrap_or(u16::MAX)
    }
}

/// A logarithm as an entry, or the largest there is.
fn entry_of(log: i64, point: u32) -> u16 {
    u16::try_from(rounded(log, point)).unwrap_or(u16::MAX)
}
