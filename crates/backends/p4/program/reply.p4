// The answer: the packet itself, turned round (rules W7, W9).

#pragma once

#include "headers.p4"
#ifdef SUMS_BY_TABLE
#include "generated/table/lanes.p4"
#else
#include "generated/lanes.p4"
#endif

// State of the region and of the request in an answer. `tag` stays that of the request for workers, which is the cookie that they expect;
// the agent gets what the bank has taken or, from a DRAIN, what the acked set is made of. Each field is set by one table: a chain of conditions would be one of stages, too.
control Answer(inout headers_t hdr, inout metadata_t meta) {
    action acknowledge() {
        hdr.libra.kind = KIND_ACK;
        hdr.libra.flags = 0;
        hdr.libra.entries = 0;
    }
    action acknowledge_with_values() {
        hdr.libra.kind = KIND_ACK;
        hdr.libra.flags = FLAG_VALUES;
    }
    action values() { hdr.libra.flags = FLAG_VALUES; }
    action no_values() {
        hdr.libra.flags = FLAG_VALUES;
        hdr.libra.entries = 0;
    }
    action refuse() {
        hdr.libra.kind = KIND_NACK;
        hdr.libra.flags = 0;
        hdr.libra.entries = 0;
    }

    // Kind of an answer, and whether it has entries.
    table kinds {
        key = {
            meta.outcome : ternary;
            meta.value_action : ternary;
        }
        actions = { acknowledge; acknowledge_with_values; values; no_values; refuse; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Outcome.PUSHED, ValueAction.READ) : acknowledge_with_values();
            (Outcome.PUSHED, _) : acknowledge();
            (Outcome.DUPLICATE, ValueAction.READ) : acknowledge_with_values();
            (Outcome.DUPLICATE, _) : acknowledge();
            (Outcome.INSTALLED, _) : acknowledge();
            (Outcome.FLIPPED, _) : acknowledge();
            (Outcome.REMEMBERED, _) : acknowledge();
            (Outcome.PULLED, ValueAction.READ) : values();
            // A PULL without entries.
            (Outcome.PULLED, _) : no_values();
            (Outcome.DRAINED, _) : values();
            (Outcome.REFUSED, _) : refuse();
        }
    }

    action now() { hdr.libra.clock[31:16] = meta.round; }
    action before() { hdr.libra.clock[31:16] = meta.round_before; }
    action reason() { hdr.libra.clock[31:16] = meta.reason; }

    table rounds {
        key = {
            meta.outcome : ternary;
            meta.seen_bank : ternary;
            meta.bank : ternary;
            meta.taken : ternary;
        }
        actions = { now; before; reason; }
        const default_action = now();
        const entries = {
            (Outcome.REFUSED, _, _, _) : reason();
            (Outcome.DRAINED, _, _, _) : before();
            // The active bank only if it has a packet (rule D2).
            (Outcome.DUPLICATE, _, _, 0) : before();
            (Outcome.DUPLICATE, 0, 1, _) : before();
            (Outcome.DUPLICATE, 1, 0, _) : before();
        }
    }

    action taken_tag() {
        hdr.libra.tag_high = 0;
        hdr.libra.tag_low = meta.taken;
    }
    action acked_tag() {
        hdr.libra.tag_high = meta.acked_bits;
        hdr.libra.tag_low = meta.acked_next;
    }

    table tags {
        key = {
            meta.is_agent : ternary;
            meta.outcome : ternary;
        }
        actions = { taken_tag; acked_tag; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (1, Outcome.DRAINED) : acked_tag();
            (1, _) : taken_tag();
        }
    }

    apply {
        kinds.apply();
        rounds.apply();
        tags.apply();
        if (meta.is_known == 1) {
            hdr.libra.view = meta.view;
            hdr.libra.clock[15:0] = meta.clock[15:0];
        } else {
            hdr.libra.clock[15:0] = 0;
        }
    }
}

// Turns the addresses round, and makes the lengths right.
control Return(inout headers_t hdr) {
    EntriesRemoval() removal;

    // All at once: hardware then needs no place for what is exchanged.
    action turn_round() {
        bit<48> mac = hdr.ethernet.source;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        bit<32> address = hdr.ipv4.source;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = address;
        bit<16> port = hdr.udp.source;
        hdr.udp.source = hdr.udp.destination;
        hdr.udp.destination = port;
        // None: over IPv4 that is allowed (RFC 768). A target that can compute one does so afterwards.
        hdr.udp.checksum = 0;
        hdr.ipv4.time_to_live = 64;
    }

    apply {
        turn_round();
        if (hdr.libra.entries == 0) {
            removal.apply(hdr);
        }
    }
}
