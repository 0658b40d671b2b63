// Sums of floats need more than those of integers: a push passes twice. The first time sums are read, and `adder.p4` computes new ones;
// the second time these are written, and everything else is done that a push does.
//
// Between the two others may have changed the sums, or swapped the banks. Each cell therefore counts its turns: a push is carried out in
// the turns in which its sums were read, which ends them, and otherwise starts again. As nothing else is changed by a packet that comes too late,
// none is added twice or in part, not even if it is lost between its passes: its worker sends it again.

#pragma once

#include "headers.p4"
#include "reply.p4"

// After so many passes a push is dropped: three that miss each other's turns in a ring would otherwise do so for ever.
const bit<16> PASSES_MAX = 254;

// A packet that comes by a port has read nothing yet.
control Begin(inout headers_t hdr) {
    apply {
        if (!hdr.again.isValid()) {
            hdr.again.setValid();
            hdr.again.passes = 0;
        }
    }
}

control Again(inout headers_t hdr, inout metadata_t meta) {
    Summands() summands;

    apply {
        // Out of turn a push gets no room in the bank.
        if (meta.is_turn == 0 && meta.outcome == Outcome.REFUSED && meta.reason == BANK_FULL) {
            if (hdr.again.passes == PASSES_MAX) {
                meta.outcome = Outcome.DROPPED;
            } else {
                // A packet that comes too late has read no turns this time, and does so the next time.
                hdr.again.passes = hdr.again.passes + 1;
                summands.apply(hdr);
                hdr.again.clock = meta.clock;
                meta.outcome = Outcome.AGAIN;
                meta.sum_action = SumAction.READ;
            }
        }
    }
}
