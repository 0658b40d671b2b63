// From bytes to headers, and to what kind of packet it is. What is not understood stays as it is, and is forwarded if it is not for the switch.

#pragma once

#include "headers.p4"

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_UDP = 17;
// Version 4, and no options.
const bit<8> PLAIN_IPV4 = 0x45;

#ifdef SUMS_BY_TABLE
// Bytes before the headers of a packet are parsed already.
parser PacketParser(packet_in packet, inout headers_t hdr, inout metadata_t meta) {
#else
parser PacketParser(packet_in packet, out headers_t hdr, inout metadata_t meta) {
#endif
#ifdef CHECKSUMS_IN_PARSER
    Checksum() header_checksum;

#endif
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_ARP: arp;
            default: accept;
        }
    }

    state arp {
        packet.extract(hdr.arp);
        transition accept;
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
#ifdef CHECKSUMS_IN_PARSER
        // Of a header without options, which is all that is taken. The v1model verifies after its parser.
        header_checksum.add(hdr.ipv4);
        meta.is_damaged = header_checksum.verify();
#endif
        // The upper two bits of the fragment field may be set: they only mean that it must not be fragmented.
        transition select(hdr.ipv4.version_and_length, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (PLAIN_IPV4, 0 &&& 0x3fff, PROTOCOL_UDP): udp;
            (PLAIN_IPV4, 0 &&& 0x3fff, PROTOCOL_ICMP): icmp;
            default: accept;
        }
    }

    state icmp {
        packet.extract(hdr.icmp);
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.ipv4.total_bytes, hdr.udp.bytes) {
            (IP_BYTES_BARE, UDP_BYTES_BARE): bare;
            (IP_BYTES_FULL, UDP_BYTES_FULL): full;
            default: accept;
        }
    }

    // Without entries.
    state bare {
        packet.extract(hdr.libra);
        transition select(hdr.libra.version) {
            VERSION: bare_of_version;
            default: accept;
        }
    }

    state bare_of_version {
        transition select(hdr.libra.magic, hdr.libra.kind, hdr.libra.flags, hdr.libra.entries) {
            (MAGIC, KIND_PULL, 0 &&& FLAGS_UNKNOWN, 0): probe;
            (MAGIC, KIND_PUSH, 0 &&& FLAGS_UNKNOWN, 0): remember;
            (MAGIC, KIND_FLIP, 0 &&& FLAGS_UNKNOWN, 0): flip;
            default: accept;
        }
    }

    state probe {
        meta.form = Form.PROBE;
        meta.is_sound = 1;
        transition accept;
    }

    state remember {
        meta.form = Form.REMEMBER;
        meta.is_sound = 1;
        transition accept;
    }

    state flip {
        meta.form = Form.FLIP;
        meta.is_sound = 1;
        transition accept;
    }

    // With an entry for each lane.
    state full {
        packet.extract(hdr.libra);
        transition select(hdr.libra.version) {
            VERSION: full_of_version;
            default: accept;
        }
    }

    state full_of_version {
        transition select(hdr.libra.magic, hdr.libra.kind, hdr.libra.flags, hdr.libra.entries) {
            (MAGIC, KIND_PUSH, 0 &&& FLAGS_UNKNOWN, LANES): push;
            (MAGIC, KIND_PULL, 0 &&& FLAGS_UNKNOWN, LANES): pull;
            (MAGIC, KIND_INSTALL, 0 &&& FLAGS_UNKNOWN, LANES): install;
            (MAGIC, KIND_DRAIN, 0 &&& FLAGS_UNKNOWN, LANES): drain;
            default: accept;
        }
    }

    state push {
        meta.form = Form.PUSH;
        // The one number that is never used.
        transition select(hdr.libra.seq) {
            0xffffffff: rest0;
            default: push0;
        }
    }

    state pull {
        meta.form = Form.PULL;
        transition cell0;
    }

    state install {
        meta.form = Form.INSTALL;
        transition cell0;
    }

    state drain {
        meta.form = Form.DRAIN;
        transition cell0;
    }

#ifdef SUMS_BY_TABLE
#include "generated/table/entries.p4"
#include "generated/table/entries_rest.p4"
#else
#include "generated/entries.p4"
#include "generated/entries_rest.p4"
#endif

    // All cells are there, and all values of a PUSH within bounds.
    state sound {
        meta.is_sound = 1;
        transition accept;
    }
}
