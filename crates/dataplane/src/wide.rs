//! The fast check of a push, several entries at once where the processor has AVX2. Whether it has is found out as it runs.

use crate::packet::EntryBytes;

/// As much of `body` as can be checked several entries at once: whether it is certainly sound, and how many entries that says it of. Also
/// the cell of the entry after them is above theirs.
///
/// A value is sound from `-bound` to `bound`, and a cell if it is above the one before.
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
pub(crate) fn check_ahead(body: &[EntryBytes], bound: i32) -> (bool, usize) {
    match pulp::x86::V3::try_new() {
        Some(v3) => v3.vectorize(avx2::Check { v3, body, bound }),
        None => (true, 0),
    }
}

/// No vector instructions are known for this target, and nothing is checked.
#[cfg(not(all(feature = "simd", target_arch = "x86_64")))]
pub(crate) const fn check_ahead(_body: &[EntryBytes], _bound: i32) -> (bool, usize) {
    (true, 0)
}

#[cfg(all(feature = "simd", target_arch = "x86_64"))]
mod avx2 {
    use core::arch::x86_64::__m256i;

    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, cast};

    use crate::packet::EntryBytes;
    use crate::wire::ENTRY_BYTES;

    /// Entries of one step.
    const STEP: usize = 4;
    const STEP_BYTES: usize = STEP * ENTRY_BYTES;
    /// A step also reads the cell of the entry after it.
    const READ_BYTES: usize = 2 * HALF_BYTES - OVERLAP_BYTES;
    /// Half a register: two entries, and the cell of the one after them.
    const HALF_BYTES: usize = 16;
    const OVERLAP_BYTES: usize = HALF_BYTES - STEP_BYTES / 2;

    /// Of the bytes of half a register: both values, and the cell after each.
    const VALUES_AND_NEXT_CELLS: [i8; HALF_BYTES] =
        [5, 4, 3, 2, 11, 10, 9, 8, 7, 6, ZERO, ZERO, 13, 12, ZERO, ZERO];
    /// Twice nothing, and the cells of both.
    const CELLS: [i8; HALF_BYTES] =
        [ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, 1, 0, ZERO, ZERO, 7, 6, ZERO, ZERO];
    const ZERO: i8 = -1;

    pub(super) struct Check<'b> {
        pub(super) v3: V3,
        pub(super) body: &'b [EntryBytes],
        pub(super) bound: i32,
    }

    impl NullaryFnOnce for Check<'_> {
        type Output = (bool, usize);

        #[inline]
        fn call(self) -> (bool, usize) {
            let Self { v3: V3 { avx, avx2, .. }, body, bound } = self;
            let twice = |half: [i8; HALF_BYTES]| -> __m256i { cast([half, half]) };
            let (next_places, places) = (twice(VALUES_AND_NEXT_CELLS), twice(CELLS));
            let above: __m256i = cast([bound, bound, -1, -1, bound, bound, -1, -1]);
            let below: __m256i = cast([bound, bound, i32::MAX, i32::MAX, bound, bound, i32::MAX, i32::MAX]);
            // Whatever is wrong makes a number negative, and the signs are gathered.
            let mut signs: __m256i = cast([0_i32; 8]);
            let mut rest = body.as_flattened();
            let mut checked = 0_usize;
            while let Some(bytes) = rest.first_chunk::<READ_BYTES>()
                && let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last_chunk())
            {
                let entries: __m256i = cast::<[[u8; HALF_BYTES]; 2], _>([*low, *high]);
                let next = avx2._mm256_shuffle_epi8(entries, next_places);
                let this = avx2._mm256_shuffle_epi8(entries, places);
                let up = avx2._mm256_add_epi32(avx2._mm256_sub_epi32(next, this), above);
                let down = avx2._mm256_sub_epi32(below, next);
                signs = avx2._mm256_or_si256(signs, avx2._mm256_or_si256(up, down));
                rest = rest.get(STEP_BYTES..).unwrap_or_default();
                checked = checked.wrapping_add(STEP);
            }
            (avx._mm256_movemask_ps(cast(signs)) == 0, checked)
        }
    }
}
