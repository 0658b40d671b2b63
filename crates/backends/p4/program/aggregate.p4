// Processing of a packet that is for the switch, in the order of the pipeline.

#pragma once

#include "admission.p4"
#include "decision.p4"
#include "reply.p4"
#ifdef SUMS_BY_TABLE
#include "again.p4"
#endif

// Values that follow from the number of a packet alone.
control Number(in headers_t hdr, inout metadata_t meta) {
    action set_bit(bit<32> acked_bit) { meta.acked_bit = acked_bit; }

    table bits {
        key = { hdr.libra.seq[4:0] : exact; }
        actions = { set_bit; }
        const default_action = set_bit(0);
        const entries = {
#include "generated/acked_bits.p4"
        }
    }

    apply {
        bits.apply();
        meta.seq_after = hdr.libra.seq + 1;
        if (hdr.libra.flags & FLAG_LAST != 0) {
            meta.taken_more = 0x10001;
        } else {
            meta.taken_more = 1;
        }
    }
}

control Aggregate(inout headers_t hdr, inout metadata_t meta) {
    Number() number;
    Clock() clock;
    Conditions() conditions;
#ifdef SUMS_BY_TABLE
    Begin() begin;
    CellsOfRegion() cells_of_region;
    Turns() turns;
    Again() again;
#endif
    Room() room;
    Window() window;
    WindowBank() window_bank;
    Taken() taken;
    AckedBits() acked_bits;
    AckedNext() acked_next;
    Decision() decision;
    CellsInside() cells_inside;
    CellsOfBank() cells_of_bank;
    Lanes() lanes;
    CellsInside() cells_again;
    Answer() answer;

    apply {
#ifdef SUMS_BY_TABLE
        begin.apply(hdr);
#endif
        number.apply(hdr, meta);
        cells_inside.apply(hdr);
        clock.apply(hdr, meta);
        conditions.apply(hdr, meta);
#ifdef SUMS_BY_TABLE
        if (hdr.again.clock == meta.clock) {
            meta.is_clock = 1;
        }
        cells_of_region.apply(hdr);
        turns.apply(hdr, meta);
#endif
        room.apply(hdr, meta);
        meta.round = meta.clock[31:16];
        meta.round_before = meta.clock[31:16] - 1;
        meta.bank = meta.clock[16:16];
        meta.bank_idle = ~meta.clock[16:16];
        if (meta.form == Form.DRAIN) {
            meta.bank_of_action = ~meta.clock[16:16];
        } else {
            meta.bank_of_action = meta.clock[16:16];
        }
        window.apply(hdr, meta);
        cells_of_bank.apply(hdr, meta);
        window_bank.apply(hdr, meta);
        taken.apply(hdr, meta);
        acked_bits.apply(hdr, meta);
        acked_next.apply(hdr, meta);
        decision.apply(hdr, meta);
#ifdef SUMS_BY_TABLE
        again.apply(hdr, meta);
#endif
        lanes.apply(hdr, meta);
        cells_again.apply(hdr);
        answer.apply(hdr, meta);
    }
}
