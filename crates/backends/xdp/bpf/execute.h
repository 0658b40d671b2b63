// A packet on its region: the checks, the window, the sums, and what the answer has. Rules are those of docs/reference/protocol.md.
#pragma once

#include "bpf.h"
#include "constants.h"
#include "entries.h"
#include "memory.h"

struct request {
    u32 kind;
    u32 flags;
    u32 worker;
    u32 plan;
    u32 view;
    u32 seq;
    u32 has_entries;
};

struct answer {
    // Zero: there is none.
    u32 kind;
    u32 flags;
    u32 view;
    u32 round;
    u32 durable;
    // Counter to increment.
    u32 outcome;
    u32 retransmit;
    u32 wake;
};

INLINE void refuse(struct answer *answer, u32 reason)
{
    answer->kind = KIND_NACK;
    answer->round = reason;
    answer->outcome = COUNT_REFUSED + reason - 1;
}

INLINE void drop(struct answer *answer, u32 outcome)
{
    answer->kind = 0;
    answer->outcome = outcome;
}

// Fields of a region are read again each time it is used (volatile): a number that has been compared is one that the
// verifier knows more of, differently for each end of a loop, and it would look at all that follows for each.

INLINE void push(struct xdp_md *ctx, const struct request *request, const volatile struct region *region,
                 union block *slots, struct flow *flow, struct answer *answer)
{
    if (!region->is_active) {
        return refuse(answer, NACK_INACTIVE);
    }
    u32 sound = region->arithmetic == ARITHMETIC_FIXED ? are_sound(ctx, region->cells - 1, region->bound, 0)
                                                       : are_sound(ctx, region->cells - 1, 0, 1);
    OPAQUE(sound);
    if (request->seq > SEQ_MAX || !sound) {
        return drop(answer, COUNT_MALFORMED);
    }

    // The bank is a number and not a branch: the verifier would look at all that follows twice.
    u32 active = region->round & 1;
    struct bank *bank = &slots->banks[active];
    OPAQUE(bank);
    u32 index = request->seq & (WINDOW - 1);
    u32 generation = request->seq / WINDOW + 1;
    u32 even = flow->words[0][index], odd = flow->words[1][index];
    u32 newest = even > odd ? even : odd;
    answer->round = region->round;
    if (newest >> 1 >= generation) {
        answer->outcome = COUNT_DUPLICATES;
        // Its round, or a newer one that is sure to close (rule D2).
        if ((newest & 1) != active || !bank->pushes) {
            answer->round = region->round - 1;
        }
    } else if (bank->pushes >= region->bank_packets_max) {
        // Not remembered: the packet will come again after the flip (rule D4).
        return refuse(answer, NACK_BANK_FULL);
    } else {
        answer->outcome = COUNT_PUSHES;
        flow->words[active][index] = generation << 1 | active;
        if (flow->next[active] <= request->seq) {
            flow->next[active] = request->seq + 1;
        }
        flow->pushes[active] += 1;
        u32 is_last = (request->flags & FLAG_LAST) / FLAG_LAST;
        u32 pushes = bank->pushes += 1;
        u32 last = bank->last += is_last;
        // As masks: else the verifier would look at all that follows once if the agent wakes, and once if not.
        answer->wake = same(pushes, 1) | same(pushes, region->due_pushes) | (same(last, region->due_last) & -is_last);
        if (region->arithmetic == ARITHMETIC_F32) {
            add_all_f32(ctx, bank, region->cells - 1);
        } else if (region->arithmetic == ARITHMETIC_TABLE) {
            add_all_table(ctx, bank, region->cells - 1);
        } else if (sound & PADDED) {
            add_padded_fixed(ctx, bank, region->cells - 1);
        } else {
            add_all_fixed(ctx, bank);
        }
    }
    answer->kind = KIND_ACK;
    answer->retransmit = request->flags & FLAG_RETRANSMIT;
    if ((request->flags & FLAG_VALUES) && region->is_readable) {
        answer->flags = FLAG_VALUES;
        read_all(ctx, slots->values, region->cells);
    }
}

INLINE void pull(struct xdp_md *ctx, const struct request *request, const volatile struct region *region,
                 const union block *slots, struct answer *answer)
{
    // Without entries it is a probe for round and durable, and those are always there (rule W10).
    if (!region->is_readable && request->has_entries) {
        return refuse(answer, NACK_NOT_INSTALLED);
    }
    if (!read_all(ctx, slots->values, region->cells)) {
        return drop(answer, COUNT_MALFORMED);
    }
    answer->kind = KIND_PULL;
    answer->flags = FLAG_VALUES;
    answer->round = region->round;
    answer->outcome = COUNT_PULLS;
}

// Carries a packet out on its region, whose lock is held: no helper of the kernel may be called here. With a MAC, which was
// verified without the lock, the region must still be the one that the MAC was over (rule A3): `tagged_view` is its view.
INLINE void execute(struct xdp_md *ctx, u32 job, const struct request *request,
                    const volatile struct region *region, union block *slots, struct flow *flow,
                    struct answer *answer, const int has_mac, u64 tagged_view)
{
    answer->view = request->view;
    answer->durable = 0;
    if (!region->is_open || region->job != job) {
        return has_mac ? drop(answer, COUNT_STALE) : refuse(answer, NACK_UNKNOWN_FLOW);
    }
    answer->view = region->view;
    answer->durable = region->durable;
    if (has_mac) {
        if (request->plan != region->plan || tagged_view != region->view) {
            return drop(answer, COUNT_STALE);
        }
    } else if (request->plan != region->plan) {
        return refuse(answer, NACK_STALE_PLAN);
    } else if (request->view != (u16)region->view) {
        return refuse(answer, NACK_STALE_VIEW);
    }
    if (request->worker >= region->flows) {
        return refuse(answer, NACK_UNKNOWN_FLOW);
    }
    if (request->kind == KIND_PUSH) {
        push(ctx, request, region, slots, flow, answer);
    } else {
        pull(ctx, request, region, slots, answer);
    }
}

// Answers without the lock of the region, as it was never opened here.
INLINE void answer_for_none(const struct request *request, struct answer *answer)
{
    answer->view = request->view;
    answer->durable = 0;
    refuse(answer, NACK_UNKNOWN_FLOW);
}
