// Everything that is there once for each lane. Written by `libra p4 generate`: do not edit.

#pragma once

// The words of all entries, for checksums.
#define ENTRY_WORDS hdr.entries[0].cell, hdr.entries[0].value, \
    hdr.entries[1].cell, hdr.entries[1].value

control Lanes(inout headers_t hdr, in metadata_t meta) {
    Lane() lane0;
    Lane() lane1;

    apply {
        lane0.apply(hdr.entries[0], hdr.again.sum0, meta);
        lane1.apply(hdr.entries[1], hdr.again.sum1, meta);
    }
}

// Leaves a packet without entries.
control EntriesRemoval(inout headers_t hdr) {
    action remove() {
        hdr.ipv4.total_bytes = IP_BYTES_BARE;
        hdr.udp.bytes = UDP_BYTES_BARE;
        hdr.entries[0].setInvalid();
        hdr.entries[1].setInvalid();
    }

    apply { remove(); }
}

// Cells of a packet are those of its region, from 0 on. In registers those of a region begin at its base, with the bank in the bit
// above them.
control CellsInside(inout headers_t hdr) {
    action keep(bit<16> mask) {
        hdr.entries[0].cell = hdr.entries[0].cell & mask;
        hdr.entries[1].cell = hdr.entries[1].cell & mask;
    }

    table masks {
        key = {
            hdr.libra.job : exact @name("job");
            hdr.libra.region : exact @name("region");
        }
        actions = { keep; @defaultonly NoAction; }
        const default_action = NoAction;
        size = REGIONS;
    }

    apply { masks.apply(); }
}

control CellsOfRegion(inout headers_t hdr) {
    action place(bit<16> base) {
        hdr.entries[0].cell = hdr.entries[0].cell | base;
        hdr.entries[1].cell = hdr.entries[1].cell | base;
    }

    table bases {
        key = {
            hdr.libra.job : exact @name("job");
            hdr.libra.region : exact @name("region");
        }
        actions = { place; @defaultonly NoAction; }
        const default_action = NoAction;
        size = REGIONS;
    }

    apply { bases.apply(); }
}

control CellsOfBank(inout headers_t hdr, in metadata_t meta) {
    action place() {
        hdr.entries[0].cell = hdr.entries[0].cell | 1 << CELL_BITS;
        hdr.entries[1].cell = hdr.entries[1].cell | 1 << CELL_BITS;
    }

    apply {
        if (meta.bank_of_action == 1) {
            place();
        }
    }
}

// Whose turn it is.
control Turns(inout headers_t hdr, inout metadata_t meta) {
    Turn() turn0;
    Turn() turn1;

    apply {
        turn0.apply(hdr.entries[0], hdr.again.turn0, hdr.again.passes[0:0], meta, meta.is_turn0);
        turn1.apply(hdr.entries[1], hdr.again.turn1, hdr.again.passes[0:0], meta, meta.is_turn1);
    }
}

// A push that will pass again takes along what is added.
control Summands(inout headers_t hdr) {
    action take_along() {
        hdr.again.value0 = hdr.entries[0].value;
        hdr.again.value1 = hdr.entries[1].value;
    }

    apply { take_along(); }
}
