// The parts of the switch that are programs of their own: the kernel's verifier looks at each by itself, and one that did all would
// be too much for it.
//
//   libra_switch: is it for us, from a worker, sound? ─▶ without MACs: carry it out, answer
//        │ with MACs
//        ▼
//   libra_verify: for the region as it is, with the right tag? ─▶ libra_execute: carry it out, answer with a tag
#pragma once

#include "bpf.h"
#include "constants.h"
#include "memory.h"

// The loader fills it before the first packet.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
    MAP_NUMBER(max_entries, PARTS);
    MAP_NUMBER(key_size, 4);
    MAP_NUMBER(value_size, 4);
} parts SEC(".maps");

// What one part knows of a packet and the next needs. Of each processor, which carries out one packet after the other.
struct handover {
    struct worker worker;
    // The view that its tag is over.
    u64 view;
};
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct handover);
} handovers SEC(".maps");

INLINE struct handover *handover(void)
{
    u32 zero = 0;
    return bpf_map_lookup_elem(&handovers, &zero);
}

// Goes on with another part, and does not return.
INLINE int go_on(struct xdp_md *ctx, u32 part)
{
    bpf_tail_call(ctx, &parts, part);
    return XDP_ABORTED;
}
