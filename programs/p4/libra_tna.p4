// Libra for Tofino. See docs/p4.md.

#include <core.p4>
#include <tna.p4>

#include "headers.p4"
#include "parser.p4"
#include "tna/registers.p4"
#include "aggregate.p4"
#include "forward.p4"

const MulticastGroupId_t FLOOD_GROUP = 1;

// From ingress to egress: before all headers.
header bridge_h {
    bit<7> padding;
    bit<1> is_answer;
    bit<16> came_by;
}

struct egress_headers_t {
    bridge_h bridge;
    headers_t packet;
}

parser IngressParser(
    packet_in packet, out egress_headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t intrinsic) {
    PacketParser() packets;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta = { };
        packets.apply(packet, hdr.packet, meta);
        transition accept;
    }
}

control Ingress(
    inout egress_headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
    in ingress_intrinsic_metadata_from_parser_t from_parser,
    inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
    inout ingress_intrinsic_metadata_for_tm_t for_traffic_manager) {
    Admission() admission;
    Aggregate() aggregate;
    Forward() forward;
    Host() host;

    apply {
        admission.apply(hdr.packet, meta, intrinsic.ingress_port);
        bit<1> is_answer;
        host.apply(hdr.packet, is_answer);
        hdr.bridge.setValid();
        hdr.bridge.is_answer = 0;
        hdr.bridge.came_by = (bit<16>)intrinsic.ingress_port;
        if (is_answer == 1) {
            for_traffic_manager.ucast_egress_port = intrinsic.ingress_port;
        } else if (meta.is_ours == 1) {
            aggregate.apply(hdr.packet, meta);
            if (meta.fate == Fate.DROPPED) {
                for_deparser.drop_ctl = 1;
            }
            hdr.bridge.is_answer = 1;
            for_traffic_manager.ucast_egress_port = intrinsic.ingress_port;
        } else {
            bit<9> port;
            forward.apply(hdr.packet, port);
            if (port == FLOOD) {
                for_traffic_manager.mcast_grp_a = FLOOD_GROUP;
            } else {
                for_traffic_manager.ucast_egress_port = port;
            }
        }
    }
}

control IngressDeparser(
    packet_out packet, inout egress_headers_t hdr, in metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply { packet.emit(hdr); }
}

parser EgressParser(
    packet_in packet, out egress_headers_t hdr, out metadata_t meta, out egress_intrinsic_metadata_t intrinsic) {
    PacketParser() packets;

    state start {
        packet.extract(intrinsic);
        packet.extract(hdr.bridge);
        meta = { };
        transition select(hdr.bridge.is_answer) {
            1: answer;
            default: accept;
        }
    }

    state answer {
        packet.extract(hdr.packet.ethernet);
        packet.extract(hdr.packet.ipv4);
        packet.extract(hdr.packet.udp);
        packet.extract(hdr.packet.libra);
        transition select(hdr.packet.udp.bytes) {
            UDP_BYTES_FULL: rest0;
            default: accept;
        }
    }

#define ONLY_REST
#include "generated/entries.p4"
}

control Egress(
    inout egress_headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t intrinsic,
    in egress_intrinsic_metadata_from_parser_t from_parser,
    inout egress_intrinsic_metadata_for_deparser_t for_deparser,
    inout egress_intrinsic_metadata_for_output_port_t for_port) {
    CellsInside() cells_inside;
    Return() way_back;

    apply {
        if (hdr.bridge.is_answer == 1) {
            cells_inside.apply(hdr.packet);
            way_back.apply(hdr.packet);
        } else if (intrinsic.egress_rid != 0 && hdr.bridge.came_by == (bit<16>)intrinsic.egress_port) {
            // A flooded frame does not go back where it came from.
            for_deparser.drop_ctl = 1;
        }
        hdr.bridge.setInvalid();
    }
}

control EgressDeparser(
    packet_out packet, inout egress_headers_t hdr, in metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    Checksum() checksum;

    apply {
        hdr.packet.ipv4.checksum = checksum.update({
            hdr.packet.ipv4.version_and_length, hdr.packet.ipv4.service, hdr.packet.ipv4.total_bytes,
            hdr.packet.ipv4.identification, hdr.packet.ipv4.fragment, hdr.packet.ipv4.time_to_live,
            hdr.packet.ipv4.protocol, hdr.packet.ipv4.source, hdr.packet.ipv4.destination });
        packet.emit(hdr);
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
