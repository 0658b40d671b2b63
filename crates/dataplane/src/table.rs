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

use crate::arithmetic::F32_NAN;

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
/// In `mi`: two numbers of different signs that are the same, as far as logarithms tell.
const CANCELLED: i16 = i16::MIN;
/// The bit of a key of `mi` that says that signs differ; the others are θ.
const SIGNS_DIFFER: u16 = 1 << 15;
const THETA_MAX: u16 = SIGNS_DIFFER - 1;

/// Half of what is rounded off the sum of terms.
const HALF_OF_LAST_PLACE: i32 = 1 << (TERM_POINT - POINT - 1);
/// In the first half of a mantissa.
const IMPLIED_ONE: u64 = 1 << 11;

const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0x7F80_0000;
const LEAST_NORMAL: u32 = 0x0080_0000;
const FRACTION_BITS: u32 = 23;

/// The tables, and the additions that they make possible.
///
/// ```
/// use libra_dataplane::FloatTables;
///
/// let mut tables = Box::new(FloatTables::EMPTY);
/// tables.fill();
/// assert_eq!(size_of::<FloatTables>(), 408 * 1024 + 512);
///
/// let sum = f32::from_bits(tables.add(1.5_f32.to_bits(), 2.25_f32.to_bits()));
/// assert!((sum - 3.75).abs() < 0.01, "{sum}");
/// // To nothing anything can be added without a loss.
/// assert_eq!(tables.add(0, 0.1_f32.to_bits()), 0.1_f32.to_bits());
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
    pub fn fill(&mut self) {
        let powers = Powers::new();
        for (exponent, entry) in (-127_i16..).zip(&mut self.epo) {
            *entry = exponent.wrapping_shl(POINT).cast_unsigned();
        }
        let log_ln2 = log2(LN2);
        for (half, (log_m, log_m_ln2)) in (0_u64..).zip(self.log_m.iter_mut().zip(&mut self.log_m_ln2)) {
            // Those without the implied one are never asked for.
            let log = log2((half | IMPLIED_ONE).wrapping_shl(ONE_BITS.wrapping_sub(11)));
            *log_m = round(log, TERM_POINT).cast_unsigned();
            *log_m_ln2 = round(log.wrapping_add(log_ln2), POINT).cast_unsigned();
        }
        for (half, entry) in (0_u64..).zip(&mut self.log_d) {
            let log = log2(half.max(1).wrapping_shl(ONE_BITS.wrapping_sub(FRACTION_BITS)));
            *entry = if half == 0 { LOG_OF_NOTHING } else { round(log, POINT) }.cast_unsigned();
        }
        for ((key, exp), float) in (0_u16..=u16::MAX).zip(&mut self.exp).zip(&mut self.float) {
            *exp = powers.of(key).as_term();
            *float = powers.of(key).as_float();
        }
        for (key, entry) in (0_u16..=u16::MAX).zip(&mut self.mi) {
            let theta = key & THETA_MAX;
            let small = powers.of(theta.wrapping_neg()).below_one();
            *entry = match (key & SIGNS_DIFFER, theta) {
                (0, 0) => 1_i16.wrapping_shl(POINT),
                (0, _) => round(log2(ONE.wrapping_add(small)), POINT),
                (_, 0) => CANCELLED,
                (_, _) => round(log2(ONE.wrapping_sub(small)), POINT),
            }
            .cast_unsigned();
        }
    }

    /// The sum of two floats, given as their bits.
    ///
    /// It is within 0.8% of the right one where signs are the same. Where they differ the error is that share of the larger summand: what is left of
    /// two numbers that nearly cancel may be far off, or zero. Subnormal numbers are zeros of their sign, in and out; zero and a number are that number,
    /// exactly; x - x is +0. Infinities and NaN are as in IEEE 754, with one NaN.
    #[must_use]
    pub fn add(&self, x: u32, y: u32) -> u32 {
        let (x, y) = (flushed(x), flushed(y));
        let (large, small) = if x & !SIGN >= y & !SIGN { (x, y) } else { (y, x) };
        let signs_differ = (large ^ small) & SIGN != 0;
        if large & !SIGN >= INFINITY {
            let is_nan = large & !SIGN > INFINITY || (signs_differ && small & !SIGN == INFINITY);
            return if is_nan { F32_NAN } else { large };
        }
        if small & !SIGN == 0 {
            // Of two zeros the sum is negative if both are.
            return if large & !SIGN == 0 { large & small } else { large };
        }
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

/// What a table has for a key. Each has an entry for every key that is used.
fn at(table: &[u16], key: u16) -> u16 {
    table.get(usize::from(key)).copied().unwrap_or_default()
}

/// A subnormal number as zero, and any other as it is.
const fn flushed(number: u32) -> u32 {
    if number & !SIGN < LEAST_NORMAL { number & SIGN } else { number }
}

/// Numbers from which tables are computed have 62 bits behind the point.
const ONE_BITS: u32 = 62;
const ONE: u64 = 1 << ONE_BITS;
const LN2: u64 = 0x2C5C_85FD_F473_DE6A;
/// Their logarithms have so many.
const LOG_BITS: u32 = 32;

/// The logarithm of a number above 0: one bit after the other, each by squaring what is left.
fn log2(number: u64) -> i64 {
    let zeros = number.leading_zeros();
    // From 1 to 2.
    let mut left =
        if zeros == 0 { number.wrapping_shr(1) } else { number.wrapping_shl(zeros.wrapping_sub(1)) };
    let mut log = 1_i64.wrapping_sub(zeros.into());
    for _ in 0..LOG_BITS {
        let square = times(left, left);
        let is_two = square.wrapping_shr(ONE_BITS + 1);
        left = square.wrapping_shr(u32::from(is_two != 0));
        log = log.wrapping_shl(1) | is_two.cast_signed();
    }
    log
}

/// A logarithm with so many bits behind the point.
fn round(log: i64, point: u32) -> i16 {
    let drop = LOG_BITS.wrapping_sub(point);
    let half = 1_i64.wrapping_shl(drop.wrapping_sub(1));
    let rounded = log.wrapping_add(half).wrapping_shr(drop);
    i16::try_from(rounded).unwrap_or(i16::MAX)
}

/// The product of two numbers below 2.
fn times(x: u64, y: u64) -> u64 {
    u64::try_from(u128::from(x).wrapping_mul(y.into()).wrapping_shr(ONE_BITS)).unwrap_or(u64::MAX)
}

/// 2 to the power of k/256, for each k.
struct Powers([u64; 1 << POINT]);

/// 2^whole * part, the part from 1 to 2.
#[derive(Clone, Copy)]
struct Power {
    whole: i16,
    part: u64,
}

impl Powers {
    fn new() -> Self {
        let mut powers = [ONE; 1 << POINT];
        // The square root of 2, then the root of that, and so on: one for each bit of k, from the highest.
        let mut root = ONE.wrapping_mul(2);
        for bit in (0..POINT).rev() {
            root = u64::try_from(u128::from(root).wrapping_shl(ONE_BITS).isqrt()).unwrap_or(u64::MAX);
            for (k, power) in (0_u32..).zip(&mut powers) {
                if k.wrapping_shr(bit) & 1 == 1 {
                    *power = times(*power, root);
                }
            }
        }
        Self(powers)
    }

    /// 2 to the power of a logarithm.
    fn of(&self, log: u16) -> Power {
        let [whole, part] = log.to_be_bytes();
        let part = self.0.get(usize::from(part)).copied().unwrap_or(ONE);
        Power { whole: whole.cast_signed().into(), part }
    }
}

impl Power {
    /// As a term of the logarithm of a mantissa, or the largest there is.
    fn as_term(self) -> u16 {
        let drop = ONE_BITS.wrapping_sub(TERM_POINT).cast_signed().wrapping_sub(self.whole.into());
        let Ok(drop @ 1..) = u32::try_from(drop) else { return u16::MAX };
        let half = 1_u64.checked_shl(drop.wrapping_sub(1)).unwrap_or_default();
        let term = self.part.wrapping_add(half).checked_shr(drop).unwrap_or_default();
        u16::try_from(term).unwrap_or(u16::MAX)
    }

    /// The upper half of a float without its sign: 8 bits of exponent, 8 of fraction. Below the least normal one it is zero.
    fn as_float(self) -> u16 {
        const DROP: u32 = ONE_BITS - 8;
        let Ok(exponent @ 1..) = u16::try_from(self.whole.wrapping_add(127)) else { return 0 };
        let fraction = self.part.wrapping_sub(ONE).wrapping_add(1 << (DROP - 1)).wrapping_shr(DROP);
        exponent.wrapping_shl(8).wrapping_add(u16::try_from(fraction).unwrap_or_default())
    }

    /// The number itself, which is 1 or less.
    fn below_one(self) -> u64 {
        self.part.checked_shr(self.whole.unsigned_abs().into()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
