// The loops over the entries of a packet, one pass each, as `crates/dataplane/src/entries.rs`.
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

// Results for the entries of a push that may be added, without and with padding at the end.
#define SOUND 1
#define PADDED 2

// 1 if the cells of a push strictly increase and its values are within the bound, padding at the end aside (rule W5); 0 if not. `is_float`
// is a constant, so that there is a loop for each.
INLINE u32 are_sound(struct xdp_md *ctx, u32 padding, u32 bound, const int is_float)
{
    s64 most = is_float ? F32_INFINITY - 1 : 2 * bound;
    OPAQUE(bound);
    OPAQUE(most);
    u8 *at = body(ctx), *end = end_of(ctx);
    s64 before = -1;
    // Negative if any is above: gathered, as a way out of the loop for each would cost more.
    s64 room = 0;
    u32 value = 0, wrong;

// A value is within the bound if this is not above the most: without its sign, or moved by the bound.
#define MOVED(value) (u64)(is_float ? (value) & F32_MAGNITUDE : (value) + bound)
#define CHECK(entry)                    \
    {                                   \
        s64 cell = CELL(entry);         \
        if (UNLIKELY(cell <= before)) { \
            goto out_of_order;          \
        }                               \
        before = cell;                  \
        value = VALUE(entry);           \
        room |= most - MOVED(value);   \
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
#undef MOVED
    // As cells increase, the last is the highest; padding is zero. Masks here and below: of numbers that are compared the verifier knows
    // something else after each number of entries, and would look at what follows for each.
    u32 ends_padded = same(before, padding);
    u32 is_right = if_negative(before - padding) | (ends_padded & same(value, 0));
    return ~(u32)(room >> 63) & is_right & (SOUND | (ends_padded & PADDED));

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
    return same(wrong, 0) & (SOUND | PADDED);
}

// Adds the entries of a push that was checked, and marks their blocks. Without padding, as nearly all are: the loop that should be short.
INLINE void add_all_fixed(struct xdp_md *ctx, struct bank *bank)
{
    u8 *at = body(ctx), *end = end_of(ctx);
    u8 *dirty = bank->dirty;
    OPAQUE(dirty);
#define ADD(entry)                                \
    {                                             \
        u32 cell = CELL(entry) & (CELLS_MAX - 1); \
        bank->sums[cell] += VALUE(entry);         \
        dirty[cell / DIRTY_BLOCK] = 1;          \
    }
    for (int i = 0; i < ENTRIES_MAX / 4 && at + 4 * ENTRY_BYTES <= end; i++) {
        ADD(at);
        ADD(at + ENTRY_BYTES);
        ADD(at + 2 * ENTRY_BYTES);
        ADD(at + 3 * ENTRY_BYTES);
        at += 4 * ENTRY_BYTES;
    }
    for (int i = 0; i < 3 && at + ENTRY_BYTES <= end; i++) {
        ADD(at);
        at += ENTRY_BYTES;
    }
#undef ADD
}

// The same up to the padding, if there is any.
#define ADD_UP_TO_PADDING(name, sum_of)                                    \
    INLINE void name(struct xdp_md *ctx, struct bank *bank, u32 padding)   \
    {                                                                      \
        u8 *at = body(ctx), *end = end_of(ctx);                            \
        for (int i = 0; i < ENTRIES_MAX && at + ENTRY_BYTES <= end; i++) { \
            u32 cell = CELL(at);                                           \
            if (UNLIKELY(cell >= padding)) {                               \
                return;                                                    \
            }                                                              \
            cell &= CELLS_MAX - 1;                                         \
            bank->sums[cell] = sum_of(bank->sums[cell], VALUE(at));        \
            bank->dirty[cell / DIRTY_BLOCK] = 1;                         \
            at += ENTRY_BYTES;                                             \
        }                                                                  \
    }
INLINE u32 add_fixed(u32 a, u32 b) { return a + b; }
ADD_UP_TO_PADDING(add_padded_fixed, add_fixed)
ADD_UP_TO_PADDING(add_all_f32, add_f32)
ADD_UP_TO_PADDING(add_all_table, add_table)
#undef ADD_UP_TO_PADDING

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
