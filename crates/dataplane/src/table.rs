//! Addition of floats by looking tables up, as a switch does it that has no unit for floats: the paper's section on floating-point
//! summation.
//!
//! A float p = 2^(e-127) (m + d), with m the implied one and the first 11 bits of the fraction and d the 12 bits after them, has the logarithm
//!
//! ```text
//! log2 p = (e - 127) + log2 m + 2^(log2 d - log2(m ln 2))              epo + log_m + exp[log_d - log_m_ln2]
//! ```
//!
//! where the last term is the first of Taylor's series, and with θ the difference of two logarithms
//!
//! ```text
//! log2(p ± q) = log2 p + log2(1 ± 2^-θ), p the larger                    log2 p + mi[θ]
//! ```
//!
//! which [`FloatTables::add`] makes a float again. Logarithms have 8 bits before the point and 8 behind it; the terms of a mantissa, below 2, are
//! summed with 15 bits behind the point and rounded once. That is the paper's memory: 408.5 KB.

use self::exact::{LN2, ONE, ONE_BITS, Power, Powers, log_of_power, log2, rounded};
pub use self::split::SplitTables;
use crate::arithmetic::{F32_NAN, FRACTION_BITS, HIDDEN, INFINITY, SIGN};

mod exact;
mod split;

/// An 8-bit exponent as a number.
const EXPONENTS: usize = 256;
/// 11 bits of a fraction with the implied one before them, or the 12 bits after those.
const HALVES: usize = 4096;
const LOGARITHMS: usize = 65_536;

/// Bits of a logarithm behind the point.
const POINT: u32 = 8;
/// Bits behind the point in the terms of the logarithm of a mantissa.
const TERM_POINT: u32 = 15;
/// The logarithm of nothing, where the exponential of a difference with it is nothing as well.
const LOG_OF_NOTHING: i16 = -100 << POINT;
/// In `mi`: two numbers of different signs that are the same, as far as logarithms show.
const CANCELLED: i16 = i16::MIN;
/// The bit of a key of `mi` that is set if signs differ; the others are θ.
const SIGNS_DIFFER: u16 = 1 << 15;
const THETA_MAX: u16 = SIGNS_DIFFER - 1;
/// From here on the logarithms of 1 ± 2^-θ are less than half of their last bit.
const THETA_CHANGES_NOTHING: u16 = 10 << POINT;

/// Half of what is rounded off the sum of terms.
const HALF_OF_LAST_PLACE: i32 = 1 << (TERM_POINT - POINT - 1);

/// The tables, filled by the compiler: one copy for all regions of a program, which no memory has to be found for.
pub static FLOAT_TABLES: FloatTables = {
    let mut tables = FloatTables::EMPTY;
    tables.fill();
    tables
};

/// The tables, and the additions that they make possible.
///
/// ```
/// use libra_dataplane::{FLOAT_TABLES, FloatTables};
///
/// assert_eq!(size_of::<FloatTables>(), 408 * 1024 + 512);
///
/// let sum = f32::from_bits(FLOAT_TABLES.add(1.5_f32.to_bits(), 2.25_f32.to_bits()));
/// assert!((sum - 3.75).abs() < 0.01, "{sum}");
/// // To nothing anything can be added without a loss.
/// assert_eq!(FLOAT_TABLES.add(0, 0.1_f32.to_bits()), 0.1_f32.to_bits());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloatTables {
    epo: [u16; EXPONENTS],
    log_m: [u16; HALVES],
    log_d: [u16; HALVES],
    log_m_ln2: [u16; HALVES],
    exp: [u16; LOGARITHMS],
    mi: [u16; LOGARITHMS],
    float: [u16; LOGARITHMS],
}

impl FloatTables {
    /// Memory for the tables. Nothing can be added before they are [filled](Self::fill).
    pub const EMPTY: Self = Self {
        epo: [0; EXPONENTS],
        log_m: [0; HALVES],
        log_d: [0; HALVES],
        log_m_ln2: [0; HALVES],
        exp: [0; LOGARITHMS],
        mi: [0; LOGARITHMS],
        float: [0; LOGARITHMS],
    };

    /// Computes what is in the tables, with integers alone: the same on every machine.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        reason = "the compiler computes it, and lets nothing overflow or be out of bounds"
    )]
    pub const fn fill(&mut self) {
        let mut exponent = 0;
        while exponent < EXPONENTS {
            self.epo[exponent] = ((exponent as i16 - 127) << POINT).cast_unsigned();
            exponent += 1;
        }

        // The logarithms of mantissas, of which those without the implied one are never asked for.
        let log_ln2 = log2(LN2);
        let mut logs = [0; HALVES];
        let mut half = HALVES / 2;
        while half < HALVES {
            logs[half] = log2((half as u64) << (ONE_BITS - 11));
            self.log_m[half] = round(logs[half], TERM_POINT);
            self.log_m_ln2[half] = round(logs[half] + log_ln2, POINT);
            half += 1;
        }
        self.log_d[0] = LOG_OF_NOTHING.cast_unsigned();
        let mut half = 1_usize;
        while half < HALVES {
            // The bits after the first half are a mantissa, too, once they are moved to its place.
            let up = half.leading_zeros() - (HALVES / 2).leading_zeros();
            self.log_d[half] = round(logs[half << up] - log_of_power(up + 12), POINT);
            half += 1;
        }

        let parts = Powers::with_point(POINT).parts::<{ 1 << POINT }>();
        let mut key = 0;
        while key < LOGARITHMS {
            let log = as_signed(key);
            let power = Power { whole: log >> POINT, part: parts[key % parts.len()] };
            self.exp[key] = as_term(power);
            self.float[key] = upper_half(power);
            key += 1;
        }

        // The other differences change nothing: their entries stay zero.
        let mut theta = 0_u16;
        while theta < THETA_CHANGES_NOTHING {
            let log = -(theta as i32);
            let part = parts[(log & 0xFF) as usize];
            let small = Power { whole: log >> POINT, part }.below_one();
            self.mi[theta as usize] = round(log2(ONE + small), POINT);
            self.mi[(theta | SIGNS_DIFFER) as usize] = match theta {
                0 => CANCELLED.cast_unsigned(),
                _ => round(log2(ONE - small), POINT),
            };
            theta += 1;
        }
    }

    /// Each table by the name that the paper has for it, in the order of the paper.
    #[must_use]
    pub const fn tables(&self) -> [(&'static str, &[u16]); 7] {
        [
            ("epo", &self.epo),
            ("log_m", &self.log_m),
            ("log_d", &self.log_d),
            ("log_m_ln2", &self.log_m_ln2),
            ("exp", &self.exp),
            ("mi", &self.mi),
            ("float", &self.float),
        ]
    }

    /// The sum of two floats, given as their bits.
    ///
    /// It is within 0.8% of the right one where signs are the same. Where they differ the error is that share of the larger summand: what is left of
    /// two numbers that nearly cancel may be far off, or zero. Subnormal numbers are zeros of their sign, in and out; zero and a number are that number,
    /// exactly; x - x is +0. Infinities and NaN are as in IEEE 754, with one NaN.
    #[must_use]
    pub fn add(&self, x: u32, y: u32) -> u32 {
        let (large, small) = match Summands::of(x, y) {
            Summands::Normal { large, small } => (large, small),
            Summands::Sum(sum) => return sum,
        };
        let signs_differ = (large ^ small) & SIGN != 0;
        let (log, log_of_small) = (self.log(large), self.log(small));
        // Rounding may put the logarithm of the smaller one above the other.
        let theta = u16::try_from(log.wrapping_sub(log_of_small)).unwrap_or_default().min(THETA_MAX);
        let key = if signs_differ { theta | SIGNS_DIFFER } else { theta };
        let change = at(&self.mi, key).cast_signed();
        if change == CANCELLED {
            return 0;
        }
        let sign = large & SIGN;
        match i16::try_from(log.wrapping_add(change.into()).max(i16::MIN.into())) {
            Ok(log) => sign | u32::from(at(&self.float, log.cast_unsigned())).wrapping_shl(FRACTION_BITS - 8),
            Err(_) => sign | INFINITY,
        }
    }

    /// The logarithm of a normal number without its sign.
    fn log(&self, number: u32) -> i32 {
        let bits = |from: u32, mask: u16| {
            u16::try_from(number.wrapping_shr(from) & u32::from(mask)).unwrap_or_default()
        };
        let (exponent, m, d) = (bits(FRACTION_BITS, 0xFF), bits(12, 0x7FF) | 0x800, bits(0, 0xFFF));
        let term = at(&self.exp, at(&self.log_d, d).wrapping_sub(at(&self.log_m_ln2, m)));
        let terms = i32::from(at(&self.log_m, m)).wrapping_add(term.into());
        let mantissa = terms.wrapping_add(HALF_OF_LAST_PLACE).wrapping_shr(TERM_POINT - POINT);
        i32::from(at(&self.epo, exponent).cast_signed()).wrapping_add(mantissa)
    }
}

/// Returns the entry of a table for a key. Each has an entry for every key that is used.
fn at(table: &[u16], key: u16) -> u16 {
    table.get(usize::from(key)).copied().unwrap_or_default()
}

/// Two numbers that are to be added.
enum Summands {
    /// Both are normal.
    Normal { large: u32, small: u32 },
    /// One is not, and their sum needs no table.
    Sum(u32),
}

impl Summands {
    fn of(x: u32, y: u32) -> Self {
        let (x, y) = (flushed(x), flushed(y));
        let (large, small) = if x & !SIGN >= y & !SIGN { (x, y) } else { (y, x) };
        let differ = (large ^ small) & SIGN != 0;
        if large & !SIGN >= INFINITY {
            let is_nan = large & !SIGN > INFINITY || (differ && small & !SIGN == INFINITY);
            return Self::Sum(if is_nan { F32_NAN } else { large });
        }
        if small & !SIGN == 0 {
            // Of two zeros the sum is negative if both are.
            return Self::Sum(if large & !SIGN == 0 { large & small } else { large });
        }
        if differ && large & !SIGN == small & !SIGN {
            return Self::Sum(0);
        }
        Self::Normal { large, small }
    }
}

/// A key as the number that it is.
#[expect(clippy::cast_possible_truncation, reason = "a key has 16 bits")]
const fn as_signed(key: usize) -> i32 {
    key as i16 as i32
}

/// A logarithm as an entry, which has room for it.
#[expect(clippy::cast_possible_truncation, reason = "the logarithm of a mantissa is small")]
const fn round(log: i64, point: u32) -> u16 {
    (rounded(log, point) as i16).cast_unsigned()
}

/// A power as a term of the logarithm of a mantissa, or the largest there is.
#[expect(clippy::cast_possible_truncation, reason = "what is larger has an arm of its own")]
const fn as_term(power: Power) -> u16 {
    match power.fixed(TERM_POINT) {
        term @ ..0x1_0000 => term as u16,
        _ => u16::MAX,
    }
}

/// The upper half of a power as a float, without its sign: 8 bits of exponent, 8 of fraction. Below the least normal one it is zero.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "an exponent and a fraction of 8 bits each"
)]
const fn upper_half(power: Power) -> u16 {
    match power.whole.wrapping_add(127) {
        ..1 => 0,
        exponent => ((exponent as u16) << 8) + power.fraction(8) as u16,
    }
}

/// A subnormal number as zero, and any other as it is.
const fn flushed(number: u32) -> u32 {
    if number & !SIGN < HIDDEN { number & SIGN } else { number }
}

#[cfg(test)]
mod tests;
