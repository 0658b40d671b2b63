//! Logarithms and powers of two, computed with integers alone and so the same everywhere: what tables are filled from.

/// Numbers have so many bits behind the point.
pub(super) const ONE_BITS: u32 = 62;
pub(super) const ONE: u64 = 1 << ONE_BITS;
pub(super) const LN2: u64 = 0x2C5C_85FD_F473_DE6A;
/// Logarithms have so many.
const LOG_BITS: u32 = 32;

/// The logarithm of a number above 0: one bit after the other, each by squaring what is left.
pub(super) fn log2(number: u64) -> i64 {
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
pub(super) const fn rounded(log: i64, point: u32) -> i64 {
    let drop = LOG_BITS.wrapping_sub(point);
    log.wrapping_add(1_i64.wrapping_shl(drop.wrapping_sub(1))).wrapping_shr(drop)
}

/// The same as an entry of a table, or the largest there is.
pub(super) fn round(log: i64, point: u32) -> i16 {
    i16::try_from(rounded(log, point)).unwrap_or(i16::MAX)
}

/// The product of two numbers below 2.
fn times(x: u64, y: u64) -> u64 {
    u64::try_from(u128::from(x).wrapping_mul(y.into()).wrapping_shr(ONE_BITS)).unwrap_or(u64::MAX)
}

/// Two to the power of logarithms.
pub(super) struct Powers {
    /// How many bits the logarithms have behind the point.
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
    pub(super) fn with_point(point: u32) -> Self {
        let mut root = ONE.wrapping_mul(2);
        let roots = core::array::from_fn(|_| {
            root = u64::try_from(u128::from(root).wrapping_shl(ONE_BITS).isqrt()).unwrap_or(u64::MAX);
            root
        });
        Self { point, roots }
    }

    pub(super) fn of(&self, log: i32) -> Power {
        let bits = (0..self.point).rev().map(|bit| log.wrapping_shr(bit) & 1 == 1);
        let factors = self.roots.iter().zip(bits).filter(|(_, is_set)| *is_set);
        let part = factors.fold(ONE, |part, (root, _)| times(part, *root));
        Power { whole: log.wrapping_shr(self.point), part }
    }
}

impl Power {
    /// The number with so many bits behind the point, or the largest there is.
    pub(super) fn fixed(self, point: u32) -> u64 {
        let drop = i64::from(ONE_BITS.wrapping_sub(point)).wrapping_sub(self.whole.into());
        let Ok(drop @ 1..) = u32::try_from(drop) else { return u64::MAX };
        let half = 1_u64.checked_shl(drop.wrapping_sub(1)).unwrap_or_default();
        self.part.wrapping_add(half).checked_shr(drop).unwrap_or_default()
    }

    /// What of the part is above 1, with so many bits.
    pub(super) const fn fraction(self, bits: u32) -> u64 {
        let drop = ONE_BITS.wrapping_sub(bits);
        self.part.wrapping_sub(ONE).wrapping_add(1_u64.wrapping_shl(drop.wrapping_sub(1))).wrapping_shr(drop)
    }

    /// The number itself, which is 1 or less.
    pub(super) fn below_one(self) -> u64 {
        self.part.checked_shr(self.whole.unsigned_abs()).unwrap_or_default()
    }
}
