//! Logarithms and powers of two, computed with integers alone and so the same everywhere: what tables are filled from.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "the compiler computes it, which takes a function of the library for 20 operators, and lets nothing overflow"
)]

/// Numbers have so many bits behind the point.
pub(super) const ONE_BITS: u32 = 62;
pub(super) const ONE: u64 = 1 << ONE_BITS;
pub(super) const LN2: u64 = 0x2C5C_85FD_F473_DE6A;
/// Logarithms have so many.
const LOG_BITS: u32 = 32;

/// The logarithm of a number above 0: one bit after the other, each by squaring what is left.
pub(super) const fn log2(number: u64) -> i64 {
    let zeros = number.leading_zeros();
    // From 1 to 2.
    let mut left = if zeros == 0 { number >> 1 } else { number << (zeros - 1) };
    let mut log = 1 - zeros as i64;
    let mut bits = 0;
    while bits < LOG_BITS {
        left = times(left, left);
        log <<= 1;
        if left >= 2 * ONE {
            left >>= 1;
            log |= 1;
        }
        bits += 1;
    }
    log
}

/// The logarithm of 2 to this power.
pub(super) const fn log_of_power(power: u32) -> i64 {
    (power as i64) << LOG_BITS
}

/// A logarithm with so many bits behind the point.
pub(super) const fn rounded(log: i64, point: u32) -> i64 {
    let drop = LOG_BITS - point;
    (log + (1 << (drop - 1))) >> drop
}

/// The product of two numbers below 2.
#[expect(clippy::cast_possible_truncation, reason = "the product is below 4")]
const fn times(x: u64, y: u64) -> u64 {
    ((x as u128 * y as u128) >> ONE_BITS) as u64
}

/// Two to the power of logarithms.
pub(super) struct Powers {
    /// Bits of the logarithms behind the point.
    point: u32,
    /// The square root of 2, the root of that, and so on.
    roots: [u64; LOG_BITS as usize],
}

/// 2^whole * part, the part from 1 to 2.
#[derive(Clone, Copy)]
pub(super) struct Power {
    pub(super) whole: i32,
    pub(super) part: u64,
}

impl Powers {
    #[expect(clippy::cast_possible_truncation, reason = "the root of a number below 2^126")]
    pub(super) const fn with_point(point: u32) -> Self {
        let mut roots = [0; LOG_BITS as usize];
        let mut root = 2 * ONE;
        let mut rest = roots.as_mut_slice();
        while let [entry, others @ ..] = rest {
            root = ((root as u128) << ONE_BITS).isqrt() as u64;
            *entry = root;
            rest = others;
        }
        Self { point, roots }
    }

    pub(super) const fn of(&self, log: i32) -> Power {
        let (mut part, mut bit) = (ONE, self.point);
        let mut roots = self.roots.as_slice();
        while let [root, others @ ..] = roots
            && bit > 0
        {
            bit -= 1;
            if log >> bit & 1 == 1 {
                part = times(part, *root);
            }
            roots = others;
        }
        Power { whole: log >> self.point, part }
    }

    /// The parts of the powers of the first logarithms from 0 on.
    pub(super) const fn parts<const N: usize>(&self) -> [u64; N] {
        let mut parts = [0; N];
        let mut log = 0;
        let mut rest = parts.as_mut_slice();
        while let [part, others @ ..] = rest {
            *part = self.of(log).part;
            log += 1;
            rest = others;
        }
        parts
    }
}

impl Power {
    /// The number with so many bits behind the point, or the largest there is.
    pub(super) const fn fixed(self, point: u32) -> u64 {
        match ONE_BITS as i32 - point as i32 - self.whole {
            ..1 => u64::MAX,
            drop @ 1..64 => (self.part + (1 << (drop - 1))) >> drop,
            64.. => 0,
        }
    }

    /// Returns the excess of the part over 1, with so many bits.
    pub(super) const fn fraction(self, bits: u32) -> u64 {
        let drop = ONE_BITS - bits;
        (self.part - ONE + (1 << (drop - 1))) >> drop
    }

    /// The number itself, which is 1 or less.
    pub(super) const fn below_one(self) -> u64 {
        match self.whole {
            ..-63 => 0,
            _ => self.part >> -self.whole,
        }
    }
}
