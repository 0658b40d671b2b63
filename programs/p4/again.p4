// What sums of floats need beyond those of integers: a push passes twice. The first time sums are read, and `adder.p4` computes new ones;
// the second time these are written, and everything else is done that a push does.
//
// Between the two others may have changed the sums, or swapped the banks. A region therefore counts its turns: a push is carried out in
// the turn in which its sums were read, which ends the turn, and passes once more if that one is over. As nothing is changed by a packet
// that comes too late, none is added twice or in part, not even if it is lost between its passes: its worker sends it again.

#pragma once

#include "headers.p4"
#include "reply.p4"

control Again(inout headers_t hdr, inout metadata_t meta) {
    Summands() summands;

    apply {
        // Without the turn a push gets no room in the bank.
        if (meta.is_turn == 0 && meta.fate == Fate.REFUSED && meta.reason == BANK_FULL) {
            summands.apply(hdr);
            hdr.again.turn = meta.turn;
            meta.fate = Fate.AGAIN;
            meta.sum_deed = SumDeed.READ;
        }
    }
}
