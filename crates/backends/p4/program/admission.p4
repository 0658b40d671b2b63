// The sender of a packet, and its region: tables that the agent fills. Fields have names, as drivers of a Tofino address entries by them.

#pragma once

#include "headers.p4"

control Admission(inout headers_t hdr, inout metadata_t meta, in PortId_t port) {
    action ours() { meta.is_ours = 1; }

    // The address of the switch.
    table addresses {
        key = {
            hdr.ipv4.destination : exact @name("address");
            hdr.udp.destination : exact @name("udp_port");
        }
        actions = { ours; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    action worker() { meta.is_worker = 1; }

    // A worker is who sends from its address, names itself (rules W3, W4), and has its cookie (rule A5), which is zero in a job
    // without keys.
    table workers {
        key = {
            hdr.ipv4.source : exact @name("address");
            hdr.udp.source : exact @name("udp_port");
            hdr.libra.job : exact @name("job");
            hdr.libra.worker : exact @name("worker");
            hdr.libra.tag_high : exact @name("tag_high");
            hdr.libra.tag_low : exact @name("tag_low");
        }
        actions = { worker; @defaultonly NoAction; }
        const default_action = NoAction;
        size = FLOWS;
    }

    action agent() { meta.is_agent = 1; }

    // The agent is who sends from its port.
    table agents {
        key = { port : exact @name("port"); }
        actions = { agent; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    // `room` is how many packets a bank takes, `flows` the first of the flows of the region, aligned so that
    // no bit of it is set in the number of a worker, too.
    action region(bit<8> index, bit<16> plan, bit<16> view, bit<FLOW_BITS> flows, bit<32> room) {
        meta.is_known = 1;
        meta.index = index;
        meta.plan_off = hdr.libra.plan ^ plan;
        meta.view = view;
        meta.room = room;
        meta.flow = flows | hdr.libra.worker[FLOW_BITS - 1:0];
    }

    table regions {
        key = {
            hdr.libra.job : exact @name("job");
            hdr.libra.region : exact @name("region");
        }
        actions = { region; @defaultonly NoAction; }
        const default_action = NoAction;
        size = REGIONS;
    }

    action fit() { meta.is_fit = 1; }

    // The same regions, by everything that a packet must have right.
    table ownerships {
        key = {
            hdr.libra.job : exact @name("job");
            hdr.libra.region : exact @name("region");
            hdr.libra.plan : exact @name("plan");
            hdr.libra.view : exact @name("view");
        }
        actions = { fit; @defaultonly NoAction; }
        const default_action = NoAction;
        size = REGIONS;
    }

    apply {
        // Hardware has other things where a header that is not there would be.
        if (hdr.udp.isValid()) {
            addresses.apply();
        }
        // A packet that is not as it was sent has no sender: it changes no register, and is dropped whatever it asks.
        if (!meta.is_damaged) {
            workers.apply();
            agents.apply();
        }
        regions.apply();
        ownerships.apply();
    }
}
