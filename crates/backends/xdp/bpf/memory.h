// Memory that the program shares with the agent: the regions and their memory, the addresses of workers, counts, and wake-ups.
// `crates/backends/xdp/src/layout.rs` is the same in Rust; sizes and places come from there as constants.
#pragma once

#include "bpf.h"
#include "constants.h"

// Terms of a region. Only the agent writes it, and always whole, under the lock: packets, which are carried out under the
// lock, see a change of it between two of them and never within one.
struct region {
    struct bpf_spin_lock lock;
    u32 is_open;
    u32 job;
    u32 plan;
    // The number of the view since which the switch holds the region: its end is in packets, tags are over all of it.
    u64 view;
    u32 round;
    u32 durable;
    u32 is_active;
    u32 is_readable;
    u32 flows;
    u32 cells;
    u32 bank_packets_max;
    // ARITHMETIC_*.
    u32 arithmetic;
    u32 bound;
    // Numbers of packets, and of those with LAST, that make the agent close the round.
    u32 due_pushes;
    u32 due_last;
};
_Static_assert(sizeof(struct region) == REGION_WORDS * 4, "as the agent writes it");

// Packets that a bank took in its round. The agent writes the idle one, the program the other.
struct bank {
    u32 pushes;
    u32 last;
    u32 sums[CELLS_MAX];
    // Of each block of slots: whether anything was added to it.
    u8 dirty[CELLS_MAX / DIRTY_BLOCK];
};

// Packets of a flow that were taken, apart for each bank: that of the idle one stands still while the agent reads it, and the acked set
// of its round is in it. A word is a generation and, in its lowest bit, the bank.
struct flow {
    u32 words[2][WINDOW];
    u32 next[2];
    // Packets taken in this round.
    u32 pushes[2];
};

union block {
    struct {
        struct bank banks[2];
        u32 values[CELLS_MAX];
    };
    struct flow flows[FLOWS_PER_BLOCK];
};
_Static_assert(sizeof(struct bank) == BANK_BYTES, "as the agent reads it");
_Static_assert(sizeof(struct flow) == FLOW_BYTES, "as the agent reads it");
_Static_assert(sizeof(union block) == BLOCK_BYTES, "as the agent makes it");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, REGIONS_MAX);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct region);
} regions SEC(".maps");

// Of each region, when it is opened: a block of banks and values, then blocks of flows. Not in `regions`, as memory with a
// lock in it cannot be mapped by the agent.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    MAP_NUMBER(max_entries, REGIONS_MAX);
    MAP_TYPE(key, u32);
    // By sizes, and without a name: of types that are pointed at from within, the compiler emits only the names.
    struct {
        MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
        MAP_NUMBER(max_entries, 1);
        MAP_NUMBER(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
        MAP_NUMBER(key_size, 4);
        MAP_NUMBER(value_size, sizeof(union block));
    } *values[];
} memory SEC(".maps");

// Tables for sums of floats, for all regions. The loader fills it; as constants each object would carry all of it.
struct {
    u16 epo[256];
    u16 log_m[4096];
    u16 log_d[4096];
    u16 log_m_ln2[4096];
    u16 exp[65536];
    u16 mi[65536];
    u16 floats[65536];
} float_tables;
_Static_assert(sizeof(float_tables) == TABLE_BYTES, "as the loader fills it");

// The address of a worker as it is on the wire.
struct address {
    u32 ip;
    u16 port;
    u16 zero;
};
// Of the MACs of packets that go one way between a worker and the switch.
struct tag_key {
    u64 words[2];
};
struct worker {
    u16 job;
    u16 number;
    // Its job's place among those that are here: each has regions of its own.
    u16 place;
    // TAGS_*: of its packets, and of their answers.
    u16 tags;
    // Zero without one, as the tags of answers are then.
    u64 cookie;
    struct tag_key up, down;
};
_Static_assert(sizeof(struct worker) == WORKER_WORDS * 8, "as the agent writes it");
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, WORKERS_MAX);
    MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
    MAP_TYPE(key, struct address);
    MAP_TYPE(value, struct worker);
} workers SEC(".maps");

// Of each job, by its place: the key that compresses the entries of its packets, if they have MACs.
struct body_key {
    u32 words[BODY_KEY_WORDS];
};
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, JOBS_MAX);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct body_key);
} body_keys SEC(".maps");

struct counts {
    u64 of[COUNTS];
};
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct counts);
} counters SEC(".maps");

// Says which region's round has begun or is due: the agent sleeps until then.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    MAP_NUMBER(max_entries, WAKES_BYTES);
} wakes SEC(".maps");
