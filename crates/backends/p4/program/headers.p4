// Headers of packets, and the metadata of one while it passes the switch. docs/reference/protocol.md defines the fields.

#pragma once

#ifdef SUMS_BY_TABLE
#include "generated/table/constants.p4"
#include "generated/table/again.p4"
#else
#include "generated/constants.p4"
#endif

header ethernet_h {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header arp_h {
    bit<16> hardware;
    bit<16> protocol;
    bit<8> hardware_bytes;
    bit<8> protocol_bytes;
    bit<16> operation;
    bit<48> sender_mac;
    bit<32> sender_ip;
    bit<48> target_mac;
    bit<32> target_ip;
}

header ipv4_h {
    bit<8> version_and_length;
    bit<8> service;
    bit<16> total_bytes;
    bit<16> identification;
    bit<16> fragment;
    bit<8> time_to_live;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header icmp_h {
    bit<8> kind;
    bit<8> code;
    bit<16> checksum;
}

header udp_h {
    bit<16> source;
    bit<16> destination;
    bit<16> bytes;
    bit<16> checksum;
}

header libra_h {
    bit<8> magic;
    bit<8> kind;
    bit<8> flags;
    bit<8> entries;
    bit<16> job;
    bit<16> worker;
    bit<16> plan;
    bit<16> view;
    bit<8> region;
    bit<8> version;
    // `round` in the upper half, `durable` in the lower one: a region keeps them in one cell of a register.
    bit<32> clock;
    bit<32> seq;
    // Of a worker, its cookie. In answers to the agent: see `reply.p4`.
    bit<32> tag_high;
    bit<32> tag_low;
}

header entry_h {
    bit<16> cell;
    bit<32> value;
}

struct headers_t {
#ifdef SUMS_BY_TABLE
    again_h again;
#endif
    ethernet_h ethernet;
    arp_h arp;
    ipv4_h ipv4;
    icmp_h icmp;
    udp_h udp;
    libra_h libra;
    entry_h[LANES] entries;
}

// Form of a packet, by its bytes alone, as the parser determines it.
enum bit<8> Form {
    OTHER = 0,       // not for the switch, or nothing that it understands
    PUSH = 1,
    PULL = 2,
    PROBE = 3,       // a PULL without entries
    INSTALL = 4,
    DRAIN = 5,
    FLIP = 6,
    REMEMBER = 7     // a PUSH without entries: from the agent, what a window is to hold
}

// Outcome of a packet of Libra.
enum bit<8> Outcome {
    DROPPED = 0,
    PUSHED = 1,
    DUPLICATE = 2,
    PULLED = 3,
    INSTALLED = 4,
    DRAINED = 5,
    FLIPPED = 6,
    REMEMBERED = 7,
    REFUSED = 8,     // with a reason
    AGAIN = 9        // floats alone: it passes once more
}

// Action on the registers of a lane.
enum bit<2> SumAction { NONE = 0, ADD = 1, TAKE = 2, READ = 3 }
enum bit<2> ValueAction { NONE = 0, READ = 1, WRITE = 2 }

struct metadata_t {
    Form form;
    // 1 if a checksum shows that the packet is not as it was sent.
    bool is_damaged;
    // 1 if all entries of a PUSH are within bounds, and its number may be used.
    bit<1> is_sound;
    bit<1> is_ours;
    bit<1> is_worker;
    bit<1> is_agent;
    // 1 if the region is here, and if plan and view of the packet are its own.
    bit<1> is_known;
    bit<1> is_fit;
    // Of the region: its number in this switch, in what its plan differs from that of the packet, and its view.
    bit<8> index;
    bit<16> plan_off;
    bit<16> view;
    bit<32> room;
    // Of the flow: its number in this switch, and of the number of the packet its bit in an acked set and the number after it.
    bit<FLOW_BITS> flow;
    bit<32> acked_bit;
    bit<32> seq_after;
    // By how much this packet changes what the bank has taken.
    bit<32> taken_more;
    // Results of registers.
    bit<32> clock;
    bit<16> round;
    bit<16> round_before;
    // The bank that takes packets, and the one that this packet is about: a DRAIN is about the other one.
    bit<1> bank;
    bit<1> bank_idle;
    bit<1> bank_of_action;
    bit<8> conditions;
    bit<1> has_room;
    bit<1> is_new;
    bit<1> is_seen;
    bit<8> seen_bank;
    bit<32> taken;
    bit<32> acked_bits;
    bit<32> acked_next;
#ifdef SUMS_BY_TABLE
    // For each lane whether its sum is as it was read for this packet, whether the clock is, and whether all of that is so.
    TURNS
    bit<1> is_clock;
    bit<1> is_turn;
#endif
    // Outcome and actions.
    SumAction sum_action;
    ValueAction value_action;
    Outcome outcome;
    bit<16> reason;
    bit<1> has_entries;
}
