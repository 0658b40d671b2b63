// A switch that also does its day job: frames go where their destination is, and the switch answers ARP and ping for its address.
// It knows no spanning tree: of a loop of cables it makes a storm. What bridges say to each other it does not forward.

#pragma once

#include "headers.p4"

const bit<16> ARP_REPLY = 2;
const bit<8> ICMP_ECHO_REPLY = 0;
const bit<9> FLOOD = 511;
const bit<9> NOWHERE = 510;

control Forward(inout headers_t hdr, out bit<9> port) {
    action to(bit<9> destination) { port = destination; }
    action flood() { port = FLOOD; }
    action keep() { port = NOWHERE; }

    // Addresses for one cable alone, which no bridge forwards (IEEE 802.1Q, table 8-1): spanning trees, pauses, LACP, LLDP.
    table reserved {
        key = { hdr.ethernet.destination : ternary; }
        actions = { keep; @defaultonly flood; }
        const default_action = flood();
        const entries = {
            0x0180c2000000 &&& 0xfffffffffff0 : keep();
        }
    }

    table stations {
        key = { hdr.ethernet.destination : exact @name("station"); }
        actions = { to; flood; }
        const default_action = flood();
        size = 1024;
    }

    apply {
        if (!reserved.apply().hit) {
            stations.apply();
        }
    }
}

// Says whether the packet was a question to the switch, which is now its answer.
control Host(inout headers_t hdr, in metadata_t meta, out bit<1> is_answer) {
    // The agent enters requests for the address of the switch, and no other operation.
    action answer_arp(bit<48> mac) {
        hdr.ethernet.destination = hdr.arp.sender_mac;
        hdr.ethernet.source = mac;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        bit<32> sender = hdr.arp.sender_ip;
        hdr.arp.sender_mac = mac;
        hdr.arp.sender_ip = hdr.arp.target_ip;
        hdr.arp.target_ip = sender;
        is_answer = 1;
    }

    table names {
        key = {
            hdr.arp.operation : exact @name("operation");
            hdr.arp.target_ip : exact @name("address");
        }
        actions = { answer_arp; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    action answer_ping() {
        bit<48> mac = hdr.ethernet.source;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        bit<32> address = hdr.ipv4.source;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = address;
        hdr.icmp.kind = ICMP_ECHO_REPLY;
        is_answer = 1;
    }

    table pings {
        key = {
            hdr.icmp.kind : exact @name("kind");
            hdr.ipv4.destination : exact @name("address");
        }
        actions = { answer_ping; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    apply {
        is_answer = 0;
        if (hdr.arp.isValid()) {
            names.apply();
        } else if (hdr.icmp.isValid() && !meta.is_damaged) {
            if (pings.apply().hit) {
                // The sum of 16-bit words has lost 0x0800, so its complement gains as much, and what it carries (RFC 1624).
                if (hdr.icmp.checksum < 0xf800) {
                    hdr.icmp.checksum = hdr.icmp.checksum + 0x0800;
                } else {
                    hdr.icmp.checksum = hdr.icmp.checksum + 0x0801;
                }
            }
        }
    }
}
