// The answer: the packet itself, turned round (rules W7, W9).

#pragma once

#include "headers.p4"
#include "generated/lanes.p4"

// What an answer says of the region and of the request. `tag` is zero for workers; the agent learns what the bank has taken or, from a
// DRAIN, what the cut is made of.
control Answer(inout headers_t hdr, inout metadata_t meta) {
    action acknowledge(bit<8> flags) {
        hdr.libra.kind = KIND_ACK;
        hdr.libra.flags = flags;
    }
    action values() { hdr.libra.flags = FLAG_VALUES; }
    action refuse() {
        hdr.libra.kind = KIND_NACK;
        hdr.libra.flags = 0;
    }

    // What an answer is, and whether it has entries.
    table kinds {
        key = {
            meta.fate : exact;
            meta.value_deed : ternary;
        }
        actions = { acknowledge; values; refuse; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Fate.PUSHED, ValueDeed.READ) : acknowledge(FLAG_VALUES);
            (Fate.PUSHED, _) : acknowledge(0);
            (Fate.DUPLICATE, ValueDeed.READ) : acknowledge(FLAG_VALUES);
            (Fate.DUPLICATE, _) : acknowledge(0);
            (Fate.INSTALLED, _) : acknowledge(0);
            (Fate.FLIPPED, _) : acknowledge(0);
            (Fate.REMEMBERED, _) : acknowledge(0);
            (Fate.PULLED, _) : values();
            (Fate.DRAINED, _) : values();
            (Fate.REFUSED, _) : refuse();
        }
    }

    apply {
        kinds.apply();
        bit<16> epoch = meta.clock[31:16];
        if (meta.fate == Fate.REFUSED) {
            epoch = meta.reason;
        } else if (meta.fate == Fate.DRAINED) {
            epoch = epoch - 1;
        } else if (meta.fate == Fate.DUPLICATE) {
            // The active bank only if it has a packet (rule D2).
            if (meta.seen_bank != (bit<8>)meta.bank || meta.taken == 0) {
                epoch = epoch - 1;
            }
        }
        hdr.libra.clock[31:16] = epoch;
        hdr.libra.clock[15:0] = meta.clock[15:0];
        if (meta.is_known == 1) {
            hdr.libra.view = meta.view;
        } else {
            hdr.libra.clock[15:0] = 0;
        }
        hdr.libra.tag_high = 0;
        hdr.libra.tag_low = 0;
        if (meta.is_agent == 1) {
            if (meta.fate == Fate.DRAINED) {
                hdr.libra.tag_high = meta.cut_bits;
                hdr.libra.tag_low = meta.cut_next;
            } else {
                hdr.libra.tag_low = meta.taken;
            }
        }
        if (hdr.libra.flags != FLAG_VALUES || meta.form == Form.PROBE) {
            hdr.libra.entries = 0;
        }
    }
}

// Turns the addresses round, and makes the lengths right.
control Return(inout headers_t hdr) {
    EntriesRemoval() removal;

    apply {
        bit<48> mac = hdr.ethernet.source;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        bit<32> address = hdr.ipv4.source;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = address;
        bit<16> port = hdr.udp.source;
        hdr.udp.source = hdr.udp.destination;
        hdr.udp.destination = port;
        // None: over IPv4 that is allowed (RFC 768).
        hdr.udp.checksum = 0;
        hdr.ipv4.time_to_live = 64;
        if (hdr.libra.entries == 0) {
            hdr.ipv4.total_bytes = IP_BYTES_BARE;
            hdr.udp.bytes = UDP_BYTES_BARE;
            removal.apply(hdr);
        }
    }
}
