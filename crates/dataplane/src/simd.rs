//! The loops over the entries of a packet that use AVX2 where the processor has it: the fast check of a push, and the hash of a body. Whether
//! it has is found out as it runs.

#[cfg(all(feature = "simd", target_arch = "x86_64"))]
pub(crate) use {avx2::is_sound, nh::nh};

/// No vector instructions are known for this target.
#[cfg(not(all(feature = "simd", target_arch = "x86_64")))]
pub(crate) const fn is_sound(
    _padding: u16,
    _body: &[crate::packet::EntryBytes],
    _bound: i32,
) -> Option<bool> {
    None
}

/// No vector instructions are known for this target.
#[cfg(not(all(feature = "simd", target_arch = "x86_64")))]
pub(crate) const fn nh(
    _key: &[u32],
    _blocks: &[[u8; crate::authentication::BLOCK_BYTES]],
    _last: Option<&[u8; crate::authentication::BLOCK_BYTES]>,
) -> Option<[u64; 2]> {
    None
}

#[cfg(all(feature = "simd", target_arch = "x86_64"))]
mod nh;

#[cfg(all(feature = "simd", target_arch = "x86_64"))]
mod avx2 {
    use core::arch::x86_64::__m256i;

    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, cast};

    use crate::packet::{Entry, EntryBytes};

    /// Entries of one step.
    const STEP: usize = 4;
    /// A step also reads the cell of the entry after it.
    const READ: usize = STEP + 1;
    /// Half a register: two entries, and the cell of the one after them.
    const HALF_BYTES: usize = 16;

    /// Of the bytes of half a register: both values, and the cell after each.
    const VALUES_AND_NEXT_CELLS: [i8; HALF_BYTES] =
        [5, 4, 3, 2, 11, 10, 9, 8, 7, 6, ZERO, ZERO, 13, 12, ZERO, ZERO];
    /// Twice nothing, and the cells of both.
    const CELLS: [i8; HALF_BYTES] =
        [ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, 1, 0, ZERO, ZERO, 7, 6, ZERO, ZERO];
    const ZERO: i8 = -1;

    /// Returns true if a push in one lane is certainly sound: its values are from `-bound` to `bound`, and its cells increase and are below `padding`.
    /// `None`: it has too few entries to be checked like this, or the processor cannot do it.
    #[inline]
    pub(crate) fn is_sound(padding: u16, body: &[EntryBytes], bound: i32) -> Option<bool> {
        let last_step: &[EntryBytes; READ] = body.last_chunk()?;
        let v3 = V3::try_new()?;
        let [.., last] = *last_step;
        let Entry { cell, value } = Entry::from_bytes(last);
        let is_last_sound = cell < padding && value.cast_signed().unsigned_abs() <= bound.cast_unsigned();
        // Steps look at the cell of the last entry, but neither at its value nor at what comes after it.
        Some(is_last_sound && v3.vectorize(Steps { v3, body, last_step, bound }))
    }

    /// The check of all entries but the last.
    struct Steps<'b> {
        v3: V3,
        body: &'b [EntryBytes],
        /// The end of `body`.
        last_step: &'b [EntryBytes; READ],
        bound: i32,
    }

    impl NullaryFnOnce for Steps<'_> {
        type Output = bool;

        #[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
        #[inline(always)]
        fn call(self) -> bool {
            let Self { v3, body, last_step, bound } = self;
            let limits = Limits {
                above: cast([bound, bound, -1, -1, bound, bound, -1, -1]),
                below: cast([bound, bound, i32::MAX, i32::MAX, bound, bound, i32::MAX, i32::MAX]),
            };
            // Whatever is wrong makes a number negative, and the signs are gathered.
            let mut signs: __m256i = cast([0_i32; 8]);
            let mut rest = body;
            while let Some(entries) = rest.first_chunk() {
                signs = v3.avx2._mm256_or_si256(signs, step(v3, &limits, entries));
                rest = rest.get(STEP..).unwrap_or_default();
            }
            // Some entries once more, so that this ends with the last, however many there are.
            signs = v3.avx2._mm256_or_si256(signs, step(v3, &limits, last_step));
            v3.avx._mm256_movemask_ps(cast(signs)) == 0
        }
    }

    struct Limits {
        above: __m256i,
        below: __m256i,
    }

    /// A negative number for what is wrong with the first [`STEP`] entries: the value of one, or that the cell after it is not above its own.
    #[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
    #[inline(always)]
    fn step(v3: V3, limits: &Limits, entries: &[EntryBytes; READ]) -> __m256i {
        let V3 { avx2, .. } = v3;
        let twice = |half: [i8; HALF_BYTES]| -> __m256i { cast([half, half]) };
        let [first @ .., _, _] = entries;
        let [_, _, second @ ..] = entries;
        let half = |entries: &[EntryBytes; 3]| -> [u8; HALF_BYTES] {
            *entries.as_flattened().first_chunk().expect("three entries are more than that")
        };
        let entries: __m256i = cast([half(first), half(second)]);
        let next = avx2._mm256_shuffle_epi8(entries, twice(VALUES_AND_NEXT_CELLS));
        let this = avx2._mm256_shuffle_epi8(entries, twice(CELLS));
        let up = avx2._mm256_add_epi32(avx2._mm256_sub_epi32(next, this), limits.above);
        let down = avx2._mm256_sub_epi32(limits.below, next);
        avx2._mm256_or_si256(up, down)
    }
}
