// The loops over the entries of a packet, one pass each, as `crates/dataplane/src/pass.rs`.
//
// Each begins from `ctx` again. To the verifier its pointers are then new ones, and it looks at a loop once, rather than once
// for each number of entries after which the loop before may have ended.
#pragma once

#include "arithmetic.h"
#include "bpf.h"
#include "constants.h"
#include "frame.h"
#include "memory.h"
#include "table.h"

#define BODY_AT (FRAME_BYTES + HEADER_BYTES)
#define CELL(at) load16(at)
#define VALUE(at) load32((at) + 2)

INLINE u8 *body(struct xdp_md *ctx) { return (u8 *)(long)*(volatile u32 *)&ctx->data + BODY_AT; }
INLINE u8 *end_of(struct xdp_md *ctx) { return (u8 *)(long)*(volatile u32 *)&ctx->data_end; }

// Whether the cells of a push strictly increase and its values are within the bound, padding at the end aside (rule W5).
INLINE int are_sound(struct xdp_md *ctx, u32 padding, u32 bound, u32 is_float)
{
    // A value is within the bound if this, without its sign or moved by the bound, is not above the most.
    u32 mask = is_float ? F32_MAGNITUDE : 0xffffffff;
    u32 shift = is_float ? 0 : bound;
    s64 most = is_float ? F32_INFINITY - 1 : 2 * bound;
    OPAQUE(mask);
    OPAQUE(shift);
    OPAQUE(most);
    u8 *at = body(ctx), *end = end_of(ctx);
    s64 before = -1;
    // Negative if any is above: gathered, as a way out of the loop for each would cost more.
    s64 room = 0;
    u32 value = 0, wrong;

#define CHECK(entry)                      \
    {                                     \
        s64 cell = CELL(entry);           \
        if (UNLIKELY(cell <= before)) {   \
            goto out_of_order;            \
        }                                 \
        before = cell;                    \
        value = VALUE(entry);             \
        room |= most - ((value + shift) & mask); \
    }
    for (int i = 0; i < ENTRIES_MAX / 4 && at + 4 * ENTRY_BYTES <= end; i++) {
        CHECK(at);
        CHECK(at + ENTRY_BYTES);
        CHECK(at + 2 * ENTRY_BYTES);
        CHECK(at + 3 * ENTRY_BYTES);
        at += 4 * ENTRY_BYTES;
    }
    for (int i = 0; i < 3 && at + ENTRY_BYTES <= end; i++) {
        CHECK(at);
        at += ENTRY_BYTES;
    }
#undef CHECK
    // As cells increase, the last is the highest; padding is zero. Masks here and below: of numbers that are compared the verifier knows
    // something else after each number of entries, and would look at what follows for each.
    u32 is_right = if_negative(before - padding) | (same(before, padding) & same(value, 0));
    return (~(u32)(room >> 63) & is_right) != 0;

out_of_order:
    // Only padding may follow padding.
    wrong = (u32)(room >> 63) | ((u32)before ^ padding) | value;
    at = body(ctx);
    end = end_of(ctx);
    u32 is_padding = 0;
    for (int i = 0; i < ENTRIES_MAX && at + ENTRY_BYTES <= end; i++) {
        u32 cell = CELL(at);
        is_padding |= same(cell, padding);
        wrong |= is_padding & ((cell ^ padding) | VALUE(at));
        at += ENTRY_BYTES;
    }
    return !wrong;
}

#define ADD(entry, sum_of)                                     \
    {                                                          \
        u32 cell = CELL(entry);                                \
        if (UNLIKELY(cell >= padding)) {                       \
            return;                                            \
        }                                                      \
        cell &= CELLS_MAX - 1;                                 \
        bank->sums[cell] = sum_of(bank->sums[cell], VALUE(entry)); \
        bank->touched[cell / TOUCH_BLOCK] = 1;                 \
    }

INLINE u32 add_fixed(u32 a, u32 b) { return a + b; }

// Adds the entries of a push that was checked, and marks their blocks.
INLINE void add_all_fixed(struct xdp_md *ctx, struct bank *bank, u32 padding)
{
    u8 *at = body(ctx), *end = end_of(ctx);
    for (int i = 0; i < ENTRIES_MAX / 4 && at + 4 * ENTRY_BYTES <= end; i++) {
        ADD(at, add_fixed);
        ADD(at + ENTRY_BYTES, add_fixed);
        ADD(at + 2 * ENTRY_BYTES, add_fixed);
        ADD(at + 3 * ENTRY_BYTES, add_fixed);
        at += 4 * ENTRY_BYTES;
    }
    for (int i = 0; i < 3 && at + ENTRY_BYTES <= end; i++) {
        ADD(at, add_fixed);
        at += ENTRY_BYTES;
    }
}

INLINE void add_all_f32(struct xdp_md *ctx, struct bank *bank, u32 padding)
{
    u8 *at = body(ctx), *end = end_of(ctx);
    for (int i = 0; i < ENTRIES_MAX && at + ENTRY_BYTES <= end; i++) {
        ADD(at, add_f32);
        at += ENTRY_BYTES;
    }
}

INLINE void add_all_table(struct xdp_md *ctx, struct bank *bank, u32 padding)
{
    u8 *at = body(ctx), *end = end_of(ctx);
    for (int i = 0; i < ENTRIES_MAX && at + ENTRY_BYTES <= end; i++) {
        ADD(at, add_table);
        at += ENTRY_BYTES;
    }
}
#undef ADD

// Fills in the values of the entries; 0 if a cell does not exist, and then some are filled in.
INLINE int read_all(struct xdp_md *ctx, const u32 *values, u32 cells)
{
    u8 *at = body(ctx), *end = end_of(ctx);
    for (int i = 0; i < ENTRIES_MAX && at + ENTRY_BYTES <= end; i++) {
        u32 cell = CELL(at);
        if (UNLIKELY(cell >= cells)) {
            return 0;
        }
        store32(at + 2, values[cell & (CELLS_MAX - 1)]);
        at += ENTRY_BYTES;
    }
    return 1;
}
