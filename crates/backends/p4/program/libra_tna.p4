// Libra for Tofino. See docs/operating/p4.md.

#include <core.p4>
#include <tna.p4>

// The parser compares the checksum of the header of IPv4.
#define CHECKSUMS_IN_PARSER

#include "headers.p4"
#include "parser.p4"
#include "tna/registers.p4"
#include "aggregate.p4"
#ifdef SUMS_BY_TABLE
#include "tna/order.p4"
#include "adder.p4"
#endif
#include "forward.p4"

const MulticastGroupId_t FLOOD_GROUP = 1;
#ifdef SUMS_BY_TABLE
// The port that leads back to ingress, of the pipe that ports 0 to 63 are of.
const PortId_t RECIRCULATION_PORT = 68;
#endif

// From ingress to egress, before all headers of a frame that is flooded: it does not go back where it came from. All others go by egress.
header bridge_h {
    bit<16> came_by;
}

struct frame_t {
    bridge_h bridge;
    headers_t packet;
}

parser IngressParser(packet_in packet, out frame_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t intrinsic) {
    PacketParser() packets;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
#ifdef SUMS_BY_TABLE
        transition select(intrinsic.ingress_port) {
            RECIRCULATION_PORT: again;
            default: packet_of_a_port;
        }
    }

    state again {
        packet.extract(hdr.packet.again);
        transition packet_of_a_port;
    }

    state packet_of_a_port {
#endif
        packets.apply(packet, hdr.packet, meta);
        transition accept;
    }
}

// Metadata of a packet is zero where its parser has set nothing: otherwise it would hold values of the packet before, or of the switch
// about this one. Neither the parser nor the program looks at `parser_err`: the hardware drops a packet that is cut off in a header.
@pa_auto_init_metadata
// Words stay whole: where they may be cut, the compiler looks at every way to cut them.
@pa_container_size("ingress", "hdr.packet.libra.clock", 32)
@pa_container_size("ingress", "hdr.packet.libra.seq", 32)
@pa_container_size("ingress", "hdr.packet.libra.tag_high", 32)
@pa_container_size("ingress", "hdr.packet.libra.tag_low", 32)
@pa_container_size("ingress", "meta.clock", 32)
@pa_container_size("ingress", "meta.room", 32)
@pa_container_size("ingress", "meta.taken", 32)
@pa_container_size("ingress", "meta.taken_more", 32)
@pa_container_size("ingress", "meta.acked_bit", 32)
@pa_container_size("ingress", "meta.acked_bits", 32)
@pa_container_size("ingress", "meta.acked_next", 32)
@pa_container_size("ingress", "meta.seq_after", 32)
control Ingress(
    inout frame_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
    in ingress_intrinsic_metadata_from_parser_t from_parser,
    inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
    inout ingress_intrinsic_metadata_for_tm_t for_traffic_manager) {
    Admission() admission;
    Aggregate() aggregate;
    Return() way_back;
    Forward() forward;
    Host() host;

    apply {
        admission.apply(hdr.packet, meta, intrinsic.ingress_port);
        for_traffic_manager.bypass_egress = 1;
        bit<1> is_answer;
        host.apply(hdr.packet, meta, is_answer);
        if (is_answer == 1) {
            for_traffic_manager.ucast_egress_port = intrinsic.ingress_port;
        } else if (meta.is_ours == 1) {
#ifdef SUMS_BY_TABLE
            PortId_t came_by = intrinsic.ingress_port;
            if (hdr.packet.again.isValid()) {
                came_by = hdr.packet.again.came_by[8:0];
            }
            aggregate.apply(hdr.packet, meta);
            if (meta.outcome == Outcome.DROPPED) {
                for_deparser.drop_ctl = 1;
            } else if (meta.outcome == Outcome.AGAIN) {
                hdr.packet.again.came_by = (bit<16>)came_by;
                for_traffic_manager.ucast_egress_port = RECIRCULATION_PORT;
                for_traffic_manager.bypass_egress = 0;
            } else {
                hdr.packet.again.setInvalid();
                way_back.apply(hdr.packet);
                for_traffic_manager.ucast_egress_port = came_by;
            }
#else
            aggregate.apply(hdr.packet, meta);
            // Those that are dropped, too: what is in a branch of its own keeps all lanes waiting.
            way_back.apply(hdr.packet);
            if (meta.outcome == Outcome.DROPPED) {
                for_deparser.drop_ctl = 1;
            } else {
                for_traffic_manager.ucast_egress_port = intrinsic.ingress_port;
            }
#endif
        } else {
            bit<9> port;
            forward.apply(hdr.packet, port);
            if (port == NOWHERE) {
                for_deparser.drop_ctl = 1;
            } else if (port == FLOOD) {
                for_traffic_manager.mcast_grp_a = FLOOD_GROUP;
                for_traffic_manager.bypass_egress = 0;
                hdr.bridge.setValid();
                hdr.bridge.came_by = (bit<16>)intrinsic.ingress_port;
            } else {
                for_traffic_manager.ucast_egress_port = port;
            }
        }
    }
}

control IngressDeparser(
    packet_out packet, inout frame_t hdr, in metadata_t meta, in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    Checksum() checksum;

    apply {
        if (meta.is_ours == 1) {
            hdr.packet.ipv4.checksum = checksum.update({
                hdr.packet.ipv4.version_and_length, hdr.packet.ipv4.service, hdr.packet.ipv4.total_bytes,
                hdr.packet.ipv4.identification, hdr.packet.ipv4.fragment, hdr.packet.ipv4.time_to_live,
                hdr.packet.ipv4.protocol, hdr.packet.ipv4.source, hdr.packet.ipv4.destination });
        }
        packet.emit(hdr);
    }
}

struct nothing_t { }

parser EgressParser(packet_in packet, out frame_t hdr, out nothing_t meta, out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
#ifdef SUMS_BY_TABLE
        transition select(intrinsic.egress_port) {
            RECIRCULATION_PORT: again;
            default: flooded;
        }
    }

    state again {
        packet.extract(hdr.packet.again);
        transition accept;
    }

    state flooded {
#endif
        packet.extract(hdr.bridge);
        transition accept;
    }
}

control Egress(
    inout frame_t hdr, inout nothing_t meta, in egress_intrinsic_metadata_t intrinsic,
    in egress_intrinsic_metadata_from_parser_t from_parser,
    inout egress_intrinsic_metadata_for_deparser_t for_deparser,
    inout egress_intrinsic_metadata_for_output_port_t for_port) {
#ifdef SUMS_BY_TABLE
    Adders() adders;
#endif

    apply {
#ifdef SUMS_BY_TABLE
        if (hdr.packet.again.isValid()) {
            adders.apply(hdr.packet.again);
        } else if (hdr.bridge.came_by == (bit<16>)intrinsic.egress_port) {
#else
        if (hdr.bridge.came_by == (bit<16>)intrinsic.egress_port) {
#endif
            for_deparser.drop_ctl = 1;
        }
        hdr.bridge.setInvalid();
    }
}

control EgressDeparser(
    packet_out packet, inout frame_t hdr, in nothing_t meta, in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply { packet.emit(hdr); }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
