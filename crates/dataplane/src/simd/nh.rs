//! The hash of a body, several blocks of eight words at once.

use core::arch::x86_64::__m256i;

use pulp::x86::V3;
use pulp::{NullaryFnOnce, cast};

use crate::authentication::{BLOCK_BYTES, BLOCK_WORDS, TOEPLITZ_WORDS};

/// Blocks of one step: with fewer, a third of the instructions is about the loop.
const STEP: usize = 4;
/// Words of the key that a step uses.
const STEP_WORDS: usize = STEP * BLOCK_WORDS + TOEPLITZ_WORDS;

/// Both hashes of the blocks, those that the key has words for. `None`: the processor cannot do it.
#[inline]
pub(crate) fn nh(
    key: &[u32],
    blocks: &[[u8; BLOCK_BYTES]],
    last: Option<&[u8; BLOCK_BYTES]>,
) -> Option<[u64; 2]> {
    let v3 = V3::try_new()?;
    Some(v3.vectorize(Blocks { v3, key, blocks, last }))
}

struct Blocks<'b> {
    v3: V3,
    key: &'b [u32],
    blocks: &'b [[u8; BLOCK_BYTES]],
    last: Option<&'b [u8; BLOCK_BYTES]>,
}

impl NullaryFnOnce for Blocks<'_> {
    type Output = [u64; 2];

    #[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
    #[inline(always)]
    fn call(self) -> [u64; 2] {
        let Self { v3, mut key, blocks, last } = self;
        let mut sums: [__m256i; 2] = [cast([0_u64; 4]); 2];
        let (steps, rest) = blocks.as_chunks::<STEP>();
        for step in steps {
            let Some(keys) = key.first_chunk::<STEP_WORDS>() else { break };
            let keys = keys.as_chunks::<TOEPLITZ_WORDS>().0;
            for (block, keys) in step.iter().zip(keys.windows(3).step_by(2)) {
                sums = add(v3, sums, block, keys);
            }
            key = key.get(STEP * BLOCK_WORDS..).unwrap_or_default();
        }
        for (block, keys) in
            rest.iter().chain(last).zip(key.as_chunks::<TOEPLITZ_WORDS>().0.windows(3).step_by(2))
        {
            sums = add(v3, sums, block, keys);
        }
        sums.map(|sum| cast::<__m256i, [u64; 4]>(sum).into_iter().fold(0, u64::wrapping_add))
    }
}

/// Adds a block to both hashes. The second one uses the words of the key that begin half a block later.
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
#[inline(always)]
fn add(
    v3: V3,
    [a, b]: [__m256i; 2],
    block: &[u8; BLOCK_BYTES],
    keys: &[[u32; TOEPLITZ_WORDS]],
) -> [__m256i; 2] {
    let &[first, second, third] = keys else { return [a, b] };
    let block: __m256i = cast(*block);
    let (a_next, b_next) = (products(v3, block, [first, second]), products(v3, block, [second, third]));
    [v3.avx2._mm256_add_epi64(a, a_next), v3.avx2._mm256_add_epi64(b, b_next)]
}

/// The products of the pairs of words, each with a word of the key added. No closure: the compiler leaves some of them as functions of their
/// own, without AVX2, and then each instruction is a call.
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
#[inline(always)]
fn products(V3 { avx2, .. }: V3, block: __m256i, key: [[u32; TOEPLITZ_WORDS]; 2]) -> __m256i {
    let added = avx2._mm256_add_epi32(block, cast(key));
    avx2._mm256_mul_epu32(added, avx2._mm256_srli_epi64::<32>(added))
}
