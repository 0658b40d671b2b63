// Floats added by looking tables up, as `crates/dataplane/src/table.rs`, which describes them and explains each step.
#pragma once

#include "arithmetic.h"
#include "bpf.h"
#include "constants.h"
#include "memory.h"

#define TABLE_THETA_MAX 0x7fff
#define TABLE_LOG_LEAST -32768
#define TABLE_LOG_MOST 32767

typedef __s16 s16;

// Masks instead of branches here, too: each branch doubles what the verifier looks at for each entry of a packet.

// A subnormal number as zero, and any other as it is.
INLINE u32 flushed(u32 number) { return number & (below(F32_HIDDEN - 1, number & F32_MAGNITUDE) | ~F32_MAGNITUDE); }

// The logarithm of a normal number without its sign, with 8 bits behind the point.
INLINE s64 log_of(u32 number)
{
    u32 exponent = number >> F32_FRACTION_BITS & 0xff;
    u32 m = (number >> 12 & 0x7ff) | 0x800, d = number & 0xfff;
    u32 key = float_tables.log_d[d] - float_tables.log_m_ln2[m];
    s64 terms = float_tables.log_m[m] + float_tables.exp[key & 0xffff];
    return (s16)float_tables.epo[exponent] + ((terms + 64) >> 7);
}

// The sum of two floats, given and returned as their bits; `b` is finite.
INLINE u32 add_table(u32 a, u32 b)
{
    a = flushed(a);
    b = flushed(b);
    u32 swap = (a ^ b) & below(a & F32_MAGNITUDE, b & F32_MAGNITUDE);
    u32 large = a ^ swap, small = b ^ swap;
    u32 magnitude = large & F32_MAGNITUDE, small_magnitude = small & F32_MAGNITUDE;
    u32 sign = large & ~F32_MAGNITUDE;
    u32 differ = (large ^ small) >> 31;
    u32 is_nothing = below(small_magnitude, 1), is_beyond = below(F32_INFINITY - 1, magnitude);
    if (is_nothing | is_beyond) {
        // Of zeros the sum has a sign if both have. What is infinite stays so, as `b` is not.
        sign &= small | ~(is_nothing & below(magnitude, 1));
        return choose(below(F32_INFINITY, magnitude), F32_NAN, sign | magnitude);
    }

    s64 log = log_of(large);
    // Rounding may put the logarithm of the smaller one above the other.
    s64 theta = log - log_of(small);
    theta &= ~if_negative(theta);
    u32 key = least(theta, TABLE_THETA_MAX) | differ << 15;
    OPAQUE(key);
    s64 change = (s16)float_tables.mi[key & 0xffff];
    // The least of all changes means that nothing is left.
    u32 is_left = ~if_negative(change + 0x7fff);
    log += change;
    s64 above = if_negative(TABLE_LOG_MOST - log), under = if_negative(log - TABLE_LOG_LEAST);
    log = (log & ~under) | (TABLE_LOG_LEAST & under);
    u32 sum = (u32)float_tables.floats[log & 0xffff] << (F32_FRACTION_BITS - 8);
    return (sign | choose(above, F32_INFINITY, sum)) & is_left;
}
