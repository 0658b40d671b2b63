// Libra for bmv2, P4's reference software switch. See docs/operating/p4.md.

#include <core.p4>
#include <v1model.p4>

typedef bit<9> PortId_t;

#include "headers.p4"
#include "parser.p4"
#include "v1model/registers.p4"
#include "aggregate.p4"
#ifdef SUMS_BY_TABLE
#include "v1model/order.p4"
#include "adder.p4"
#endif
#include "forward.p4"

// Input of checksums: for UDP also the part that RFC 768 takes from IP. Entries are generated, as `ENTRY_WORDS`.
#define IPV4_WORDS hdr.ipv4.version_and_length, hdr.ipv4.service, hdr.ipv4.total_bytes, hdr.ipv4.identification, hdr.ipv4.fragment, \
    hdr.ipv4.time_to_live, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
#define UDP_WORDS hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.bytes, \
    hdr.udp.source, hdr.udp.destination, hdr.udp.bytes
#define LIBRA_WORDS hdr.libra.magic, hdr.libra.kind, hdr.libra.flags, hdr.libra.entries, hdr.libra.job, hdr.libra.worker, hdr.libra.plan, \
    hdr.libra.view, hdr.libra.region, hdr.libra.version, hdr.libra.clock, hdr.libra.seq, hdr.libra.tag_high, hdr.libra.tag_low

const bit<16> FLOOD_GROUP = 1;
#ifdef SUMS_BY_TABLE
// Metadata of bmv2 for a packet that passes once more.
const bit<32> RECIRCULATED = 4;
#endif

parser LibraParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    PacketParser() packets;

    state start {
#include "v1model/start.p4"
#ifdef SUMS_BY_TABLE
        transition select(standard.instance_type) {
            RECIRCULATED: again;
            default: packet_of_a_port;
        }
    }

    state again {
        packet.extract(hdr.again);
        transition packet_of_a_port;
    }

    state packet_of_a_port {
#endif
        packets.apply(packet, hdr, meta);
        transition accept;
    }
}

// Verification of the checksums that a packet brings: their sums, themselves included, are then zero, as `meta.reason` still is.
// Compared with what they should be, 0 and 0xffff would be two, but they mean the same. A UDP checksum of 0 is none (RFC 768).
control LibraVerification(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.version_and_length == PLAIN_IPV4,
            { IPV4_WORDS, hdr.ipv4.checksum },
            meta.reason, HashAlgorithm.csum16);
        verify_checksum(hdr.libra.isValid() && !hdr.entries[0].isValid() && hdr.udp.checksum != 0,
            { UDP_WORDS, LIBRA_WORDS, hdr.udp.checksum },
            meta.reason, HashAlgorithm.csum16);
        verify_checksum(hdr.entries[0].isValid() && hdr.udp.checksum != 0,
            { UDP_WORDS, LIBRA_WORDS, ENTRY_WORDS, hdr.udp.checksum },
            meta.reason, HashAlgorithm.csum16);
    }
}

control LibraIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Admission() admission;
    Aggregate() aggregate;
    Return() way_back;
    Forward() forward;
    Host() host;

    apply {
        if (standard.parser_error != error.NoError) {
            // It is cut off in a header (rule W2).
            mark_to_drop(standard);
        } else {
            meta.is_damaged = standard.checksum_error == 1;
            PortId_t came_by = standard.ingress_port;
#ifdef SUMS_BY_TABLE
            if (hdr.again.isValid()) {
                came_by = (PortId_t)hdr.again.came_by;
            }
#endif
            admission.apply(hdr, meta, came_by);
            bit<1> is_answer;
            host.apply(hdr, meta, is_answer);
            if (is_answer == 1) {
                standard.egress_spec = came_by;
            } else if (meta.is_ours == 1) {
                aggregate.apply(hdr, meta);
                if (meta.outcome == Outcome.DROPPED) {
                    mark_to_drop(standard);
#ifdef SUMS_BY_TABLE
                } else if (meta.outcome == Outcome.AGAIN) {
                    hdr.again.came_by = (bit<16>)came_by;
                    standard.egress_spec = came_by;
                } else {
                    hdr.again.setInvalid();
#else
                } else {
#endif
                    way_back.apply(hdr);
                    standard.egress_spec = came_by;
                }
            } else {
                bit<9> port;
                forward.apply(hdr, port);
                if (port == NOWHERE) {
                    mark_to_drop(standard);
                } else if (port == FLOOD) {
                    standard.mcast_grp = FLOOD_GROUP;
                } else {
                    standard.egress_spec = port;
                }
            }
        }
    }
}

control LibraEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
#ifdef SUMS_BY_TABLE
    Adders() adders;
#endif

    apply {
#ifdef SUMS_BY_TABLE
        if (hdr.again.isValid()) {
            adders.apply(hdr.again);
            recirculate_preserving_field_list(0);
        }
#endif
        // A flooded frame does not go back where it came from.
        if (standard.mcast_grp == FLOOD_GROUP && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

control LibraChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && meta.is_ours == 1, { IPV4_WORDS }, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.libra.isValid() && !hdr.entries[0].isValid() && meta.is_ours == 1,
            { UDP_WORDS, LIBRA_WORDS },
            hdr.udp.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.entries[0].isValid() && meta.is_ours == 1,
            { UDP_WORDS, LIBRA_WORDS, ENTRY_WORDS },
            hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

control LibraDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}

V1Switch(LibraParser(), LibraVerification(), LibraIngress(), LibraEgress(), LibraChecksums(), LibraDeparser()) main;
