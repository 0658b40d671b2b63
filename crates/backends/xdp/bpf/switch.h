// The data plane of a switch in the kernel: takes hot packets before any socket sees them, adds them up, and answers on the
// interface that they came from. It does what `Pipeline::process_burst` of `crates/dataplane` does with one packet.
//
//   frame -> is it for us, and from a worker? -> header -> under the lock of its region: check, look up, add, read -> answer
//
// Everything that is not a whole datagram of a worker goes to the stack. Rules are those of docs/reference/protocol.md.
#pragma once

#include "bpf.h"
#include "constants.h"
#include "entries.h"
#include "frame.h"
#include "memory.h"

#define PLACE_OF(field) (hot + AT_##field)

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

// Carries a packet out on its region, whose lock is held: no helper of the kernel may be called here.
INLINE void execute(struct xdp_md *ctx, u32 job, const struct request *request,
                    const volatile struct region *region, union block *slots, struct flow *flow,
                    struct answer *answer)
{
    answer->view = request->view;
    answer->durable = 0;
    if (!region->is_open || region->job != job) {
        return refuse(answer, NACK_UNKNOWN_FLOW);
    }
    answer->view = region->view;
    answer->durable = region->durable;
    if (request->plan != region->plan) {
        return refuse(answer, NACK_STALE_PLAN);
    }
    if (request->view != region->view) {
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

INLINE int dropped(struct counts *counts, u32 outcome)
{
    counts->of[outcome] += 1;
    return XDP_DROP;
}

// Takes a frame, and returns its verdict. `shorten` is set if the frame of an answer gets the length of the answer.
INLINE int handle(struct xdp_md *ctx, int shorten)
{
    u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
    struct headers *headers = (struct headers *)data;
    if (data + FRAME_BYTES > end || !is_for_us(headers, end - data)) {
        return XDP_PASS;
    }
    struct address from = {
        .ip = *(u32 *)(data + sizeof(struct ethhdr) + 12),
        .port = *(u16 *)(data + sizeof(struct ethhdr) + sizeof(struct iphdr)),
    };
    struct worker *worker = bpf_map_lookup_elem(&workers, &from);
    u32 zero = 0;
    struct counts *counts = bpf_map_lookup_elem(&counters, &zero);
    if (!counts) {
        return XDP_ABORTED;
    }
    if (!worker) {
        return dropped(counts, COUNT_UNKNOWN_SENDERS);
    }

    u8 *hot = data + FRAME_BYTES;
    if (hot + HEADER_BYTES > end) {
        return dropped(counts, COUNT_MALFORMED);
    }
    u32 kind = *PLACE_OF(KIND), flags = *PLACE_OF(FLAGS), entries = *PLACE_OF(ENTRIES);
    if (*PLACE_OF(MAGIC) != MAGIC || kind < KIND_PUSH || kind > KIND_STREAM || (flags & ~FLAGS_KNOWN) ||
        *PLACE_OF(VERSION) != VERSION) {
        return dropped(counts, COUNT_MALFORMED);
    }
    s64 beyond = (s64)(end - data) - (s64)(BODY_AT + entries * ENTRY_BYTES);
    if (beyond > 0) {
        // Perhaps a run of packets that the kernel has not cut yet (GSO, in generic mode). The socket cuts it.
        return XDP_PASS;
    }
    if (beyond < 0) {
        return dropped(counts, COUNT_MALFORMED);
    }
    u32 job = worker->job;
    if (load16(PLACE_OF(JOB)) != job || load16(PLACE_OF(WORKER)) != worker->number) {
        return dropped(counts, COUNT_FOREIGN);
    }
    if (kind != KIND_PUSH && kind != KIND_PULL) {
        return dropped(counts, COUNT_UNEXPECTED);
    }
    struct request request = {
        .kind = kind,
        .flags = flags,
        .worker = worker->number,
        .plan = load16(PLACE_OF(PLAN)),
        .view = load16(PLACE_OF(VIEW)),
        .seq = load32(PLACE_OF(SEQ)),
        .has_entries = entries != 0,
    };

    u32 number = worker->place * REGIONS_OF_JOB + *PLACE_OF(REGION);
    struct answer empty = {}, *answer = &empty;
    OPAQUE(answer);
    struct region *region = bpf_map_lookup_elem(&regions, &number);
    void *blocks = bpf_map_lookup_elem(&memory, &number);
    u32 flow_block = 1 + request.worker / FLOWS_PER_BLOCK;
    union block *slots = blocks ? bpf_map_lookup_elem(blocks, &zero) : 0;
    union block *flows = blocks ? bpf_map_lookup_elem(blocks, &flow_block) : 0;
    if (!region || !slots) {
        answer_for_none(&request, answer);
    } else {
        // A worker beyond the flows has no block, and is refused before it would be looked at.
        struct flow *flow = &(flows ? flows : slots)->flows[request.worker % FLOWS_PER_BLOCK];
        bpf_spin_lock(&region->lock);
        execute(ctx, job, &request, region, slots, flow, answer);
        bpf_spin_unlock(&region->lock);
    }

    if (answer->outcome < COUNTS) {
        counts->of[answer->outcome] += 1;
    }
    counts->of[COUNT_RETRANSMITS] += answer->retransmit;
    if (UNLIKELY(answer->wake)) {
        bpf_ringbuf_output(&wakes, &number, sizeof(number), 0);
    }
    if (!answer->kind) {
        return XDP_DROP;
    }

    // Pointers are computed again: of those from before the verifier knows more or less of the frame, by where the loops have ended.
    headers = (struct headers *)(body(ctx) - BODY_AT);
    hot = (u8 *)headers + FRAME_BYTES;
    if (hot + HEADER_BYTES > end_of(ctx)) {
        return XDP_DROP;
    }
    u32 answered = answer->flags & FLAG_VALUES ? entries : 0;
    *PLACE_OF(KIND) = answer->kind;
    *PLACE_OF(FLAGS) = answer->flags;
    *PLACE_OF(ENTRIES) = answered;
    store16(PLACE_OF(VIEW), answer->view);
    store16(PLACE_OF(ROUND), answer->round);
    store16(PLACE_OF(DURABLE), answer->durable);
    store32(PLACE_OF(TAG), 0);
    store32(PLACE_OF(TAG) + 4, 0);
    u32 answer_bytes = HEADER_BYTES + answered * ENTRY_BYTES;
    turn_round(headers, answer_bytes);
    int delta = shorten ? -(int)((entries - answered) * ENTRY_BYTES) : 0;
    if (answered != entries && bpf_xdp_adjust_tail(ctx, delta)) {
        return XDP_DROP;
    }
    return XDP_TX;
}
