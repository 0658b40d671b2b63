// The data plane of a switch in the kernel: takes hot packets before any socket sees them, adds them up, and answers on the
// interface that they came from. It does what `Pipeline::process_burst` of `crates/dataplane` does with one packet.
//
//   frame -> is it for us, and from a worker? -> header -> under the lock of its region: check, look up, add, read -> answer
//
// Everything that is not a whole datagram of a worker goes to the stack. `SHORTENS` says whether the frame of an answer gets the
// length of the answer. Rules are those of docs/reference/protocol.md.
#pragma once

#include "authentication.h"
#include "bpf.h"
#include "constants.h"
#include "entries.h"
#include "execute.h"
#include "frame.h"
#include "memory.h"
#include "parts.h"

#define PLACE_OF(field) (hot + AT_##field)

INLINE struct counts *counts_here(void)
{
    u32 zero = 0;
    return bpf_map_lookup_elem(&counters, &zero);
}

INLINE int dropped(struct counts *counts, u32 outcome)
{
    counts->of[outcome] += 1;
    return XDP_DROP;
}

INLINE struct worker *sender_of(const u8 *frame)
{
    struct address from = {
        .ip = *(const u32 *)(frame + sizeof(struct ethhdr) + 12),
        .port = *(const u16 *)(frame + sizeof(struct ethhdr) + sizeof(struct iphdr)),
    };
    return bpf_map_lookup_elem(&workers, &from);
}

// Whether a packet names this worker as its sender.
INLINE int is_named(const struct worker *worker, const u8 *hot)
{
    return load16(PLACE_OF(JOB)) == worker->job && load16(PLACE_OF(WORKER)) == worker->number;
}

INLINE u32 region_of(const struct worker *worker, const u8 *hot)
{
    return worker->place * REGIONS_OF_JOB + *PLACE_OF(REGION);
}

// Carries out a packet whose header is sound and says who its sender is, and turns it into its answer. A MAC was found to be right for the
// region in this view.
INLINE int carry_out(struct xdp_md *ctx, u8 *hot, const struct worker *worker, struct counts *counts, const int has_mac,
                     u64 tagged_view)
{
    u32 entries = *PLACE_OF(ENTRIES);
    u32 job = worker->job;
    struct request request = {
        .kind = *PLACE_OF(KIND),
        .flags = *PLACE_OF(FLAGS),
        .worker = worker->number,
        .plan = load16(PLACE_OF(PLAN)),
        .view = load16(PLACE_OF(VIEW)),
        .seq = load32(PLACE_OF(SEQ)),
        .has_entries = entries != 0,
    };

    u32 number = region_of(worker, hot), zero = 0;
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
        execute(ctx, job, &request, region, slots, flow, answer, has_mac, tagged_view);
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
    struct headers *headers = (struct headers *)(body(ctx) - BODY_AT);
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
    store64(PLACE_OF(TAG), has_mac ? mac_of_answer(ctx, tagged_view, answered) : worker->cookie);
    u32 answer_bytes = HEADER_BYTES + answered * ENTRY_BYTES;
    turn_round(headers, answer_bytes);
    int delta = SHORTENS ? -(int)((entries - answered) * ENTRY_BYTES) : 0;
    if (answered != entries && bpf_xdp_adjust_tail(ctx, delta)) {
        return XDP_DROP;
    }
    return XDP_TX;
}

// Takes a frame, and returns its verdict.
INLINE int handle(struct xdp_md *ctx)
{
    u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
    struct headers *headers = (struct headers *)data;
    if (data + FRAME_BYTES > end || !is_for_us(headers, end - data)) {
        return XDP_PASS;
    }
    struct worker *worker = sender_of(data);
    struct counts *counts = counts_here();
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
    if (!is_named(worker, hot)) {
        return dropped(counts, COUNT_FOREIGN);
    }
    if (kind != KIND_PUSH && kind != KIND_PULL) {
        return dropped(counts, COUNT_UNEXPECTED);
    }
    if (worker->tags == TAGS_MAC) {
        struct handover *to_next = handover();
        if (!to_next) {
            return XDP_ABORTED;
        }
        to_next->worker = *worker;
        return go_on(ctx, PART_VERIFY);
    }
    // A cookie is of no region: what is for none that is here is answered (rule A5).
    if (worker->tags == TAGS_COOKIE && load64(PLACE_OF(TAG)) != worker->cookie) {
        return dropped(counts, COUNT_FORGED);
    }
    return carry_out(ctx, hot, worker, counts, 0, 0);
}

// Whether a packet is for its region as it is, and has the MAC of its sender (rule A3). Without the lock: what the region is by
// the time of the lock is compared again.
SEC("xdp")
int libra_verify(struct xdp_md *ctx)
{
    struct handover *here = handover();
    struct counts *counts = counts_here();
    const struct body_key *body_key = here ? body_key_of(&here->worker) : 0;
    u8 *hot = body(ctx) - HEADER_BYTES;
    if (!body_key || !counts || hot + HEADER_BYTES > end_of(ctx)) {
        return XDP_ABORTED;
    }
    u32 number = region_of(&here->worker, hot);
    const volatile struct region *region = bpf_map_lookup_elem(&regions, &number);
    if (!region || !region->is_open || region->job != here->worker.job || region->plan != load16(PLACE_OF(PLAN))) {
        return dropped(counts, COUNT_STALE);
    }
    u64 view = region->view;
    if ((u16)view != load16(PLACE_OF(VIEW))) {
        return dropped(counts, COUNT_STALE);
    }
    u64 tag = load64(PLACE_OF(TAG));
    here->view = view;
    if (mac_of(ctx, body_key, &here->worker.up, view, *PLACE_OF(ENTRIES)) != tag) {
        return dropped(counts, COUNT_FORGED);
    }
    return go_on(ctx, PART_EXECUTE);
}

// What is left to do with a packet that was verified.
SEC("xdp")
int libra_execute(struct xdp_md *ctx)
{
    struct handover *here = handover();
    struct counts *counts = counts_here();
    u8 *hot = body(ctx) - HEADER_BYTES;
    if (!here || !counts || hot + HEADER_BYTES > end_of(ctx)) {
        return XDP_ABORTED;
    }
    // A kernel may interrupt a packet of the agent (BPF_PROG_TEST_RUN) for one from the interface: then this is of the latter.
    if (!is_named(&here->worker, hot)) {
        return dropped(counts, COUNT_FOREIGN);
    }
    return carry_out(ctx, hot, &here->worker, counts, 1, here->view);
}
