// Addition in a slot: with integers only, as `crates/dataplane/src/arithmetic.rs`, which explains each step.
#pragma once

#include "bpf.h"
#include "constants.h"

// Branches that no processor can predict are masks instead; those that are there are predicted nearly always, or save much.

#define F32_MAGNITUDE 0x7fffffffu
#define F32_INFINITY 0x7f800000u
#define F32_EXTRA_BITS 3
#define F32_FRACTION_BITS 23
// The leading bit of a normal number, which is not stored.
#define F32_HIDDEN (1u << F32_FRACTION_BITS)

// All ones if a number is negative, else zero.
INLINE s64 if_negative(s64 number)
{
    // The compiler turns into a branch only what it sees.
    OPAQUE(number);
    return number >> 63;
}

// All ones if a < b, else zero.
INLINE u32 below(u32 a, u32 b) { return if_negative((s64)(u64)a - (s64)(u64)b); }

// All ones if a == b, else zero.
INLINE u32 same(u32 a, u32 b) { return below(a ^ b, 1); }

// One of two, by a mask of all ones or zero.
INLINE u32 choose(u32 mask, u32 then, u32 otherwise) { return otherwise ^ ((then ^ otherwise) & mask); }

INLINE u32 least(u32 a, u32 b) { return choose(below(a, b), a, b); }

// Shifts right; the last bit is also set if any bit that fell out was. For less than 2^31.
INLINE u32 shift_right_sticky(u32 fraction, u32 by)
{
    by = least(by, 31);
    u32 kept = fraction >> by;
    return kept | (below(kept << by, fraction) & 1);
}

// Distance of a fraction that is not zero from the place of the hidden bit. The machine of the kernel's programs cannot count
// zeros.
INLINE u32 places_up(u32 fraction)
{
    u32 up = 0;
#pragma unroll
    for (u32 step = 16; step; step /= 2) {
        u32 by = below(fraction, 2 * (F32_HIDDEN << F32_EXTRA_BITS) >> step) & step;
        fraction <<= by;
        up += by;
    }
    return up;
}

// The sum of two IEEE 754 single precision numbers, given and returned as their bits; `b` is finite.
INLINE u32 add_f32(u32 a, u32 b)
{
    u32 swap = (a ^ b) & below(a & F32_MAGNITUDE, b & F32_MAGNITUDE);
    u32 large = a ^ swap, small = b ^ swap;
    u32 exponent = large >> F32_FRACTION_BITS & 255;
    u32 small_exponent = small >> F32_FRACTION_BITS & 255;
    if (UNLIKELY(exponent == 255)) {
        // Infinity stays, as `b` is finite; any NaN becomes the one that there is.
        return large << 9 ? F32_NAN : large;
    }
    u32 sign = large >> 31;
    // All ones to subtract, zero to add.
    u32 subtract = -((large ^ small) >> 31);

    // Those without a hidden bit have the exponent of the least that has one.
    u32 is_normal = (exponent + 255) >> 8, small_is_normal = (small_exponent + 255) >> 8;
    u32 apart = exponent - is_normal - small_exponent + small_is_normal;
    u32 fraction = ((large & (F32_HIDDEN - 1)) | is_normal << F32_FRACTION_BITS) << F32_EXTRA_BITS;
    u32 small_fraction = ((small & (F32_HIDDEN - 1)) | small_is_normal << F32_FRACTION_BITS) << F32_EXTRA_BITS;
    small_fraction = shift_right_sticky(small_fraction, apart);
    fraction += (small_fraction ^ subtract) - subtract;

    // Exponents are one less from here on: the hidden bit, where there is one, adds one in the end.
    exponent -= is_normal;
    if (fraction < F32_HIDDEN << F32_EXTRA_BITS) {
        // A difference may be too short.
        if (!fraction) {
            return subtract ? 0 : sign << 31;
        }
        u32 up = least(places_up(fraction), exponent);
        fraction <<= up;
        exponent -= up;
    } else {
        // A sum may be one bit too long.
        u32 carry = fraction >> (F32_FRACTION_BITS + F32_EXTRA_BITS + 1);
        fraction = (fraction >> carry) | (fraction & carry);
        exponent += carry;
    }

    // More than a half of the last place goes up, a half to the even neighbour.
    u32 even = (fraction >> F32_EXTRA_BITS & 1) + 3;
    u32 packed = (exponent << F32_FRACTION_BITS) + ((fraction + even) >> F32_EXTRA_BITS);
    if (UNLIKELY(packed > F32_INFINITY)) {
        packed = F32_INFINITY;
    }
    return sign << 31 | packed;
}
