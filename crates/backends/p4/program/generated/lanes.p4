// Everything that is there once for each lane. Written by `libra p4 generate`: do not edit.

#pragma once

// The words of all entries, for checksums.
#define ENTRY_WORDS hdr.entries[0].cell, hdr.entries[0].value, \
    hdr.entries[1].cell, hdr.entries[1].value, \
    hdr.entries[2].cell, hdr.entries[2].value, \
    hdr.entries[3].cell, hdr.entries[3].value, \
    hdr.entries[4].cell, hdr.entries[4].value, \
    hdr.entries[5].cell, hdr.entries[5].value, \
    hdr.entries[6].cell, hdr.entries[6].value, \
    hdr.entries[7].cell, hdr.entries[7].value, \
    hdr.entries[8].cell, hdr.entries[8].value, \
    hdr.entries[9].cell, hdr.entries[9].value, \
    hdr.entries[10].cell, hdr.entries[10].value, \
    hdr.entries[11].cell, hdr.entries[11].value, \
    hdr.entries[12].cell, hdr.entries[12].value, \
    hdr.entries[13].cell, hdr.entries[13].value, \
    hdr.entries[14].cell, hdr.entries[14].value, \
    hdr.entries[15].cell, hdr.entries[15].value

control Lanes(inout headers_t hdr, in metadata_t meta) {
    Lane() lane0;
    Lane() lane1;
    Lane() lane2;
    Lane() lane3;
    Lane() lane4;
    Lane() lane5;
    Lane() lane6;
    Lane() lane7;
    Lane() lane8;
    Lane() lane9;
    Lane() lane10;
    Lane() lane11;
    Lane() lane12;
    Lane() lane13;
    Lane() lane14;
    Lane() lane15;

    apply {
        lane0.apply(hdr.entries[0], meta);
        lane1.apply(hdr.entries[1], meta);
        lane2.apply(hdr.entries[2], meta);
        lane3.apply(hdr.entries[3], meta);
        lane4.apply(hdr.entries[4], meta);
        lane5.apply(hdr.entries[5], meta);
        lane6.apply(hdr.entries[6], meta);
        lane7.apply(hdr.entries[7], meta);
        lane8.apply(hdr.entries[8], meta);
        lane9.apply(hdr.entries[9], meta);
        lane10.apply(hdr.entries[10], meta);
        lane11.apply(hdr.entries[11], meta);
        lane12.apply(hdr.entries[12], meta);
        lane13.apply(hdr.entries[13], meta);
        lane14.apply(hdr.entries[14], meta);
        lane15.apply(hdr.entries[15], meta);
    }
}

// Leaves a packet without entries.
control EntriesRemoval(inout headers_t hdr) {
    action remove() {
        hdr.ipv4.total_bytes = IP_BYTES_BARE;
        hdr.udp.bytes = UDP_BYTES_BARE;
        hdr.entries[0].setInvalid();
        hdr.entries[1].setInvalid();
        hdr.entries[2].setInvalid();
        hdr.entries[3].setInvalid();
        hdr.entries[4].setInvalid();
        hdr.entries[5].setInvalid();
        hdr.entries[6].setInvalid();
        hdr.entries[7].setInvalid();
        hdr.entries[8].setInvalid();
        hdr.entries[9].setInvalid();
        hdr.entries[10].setInvalid();
        hdr.entries[11].setInvalid();
        hdr.entries[12].setInvalid();
        hdr.entries[13].setInvalid();
        hdr.entries[14].setInvalid();
        hdr.entries[15].setInvalid();
    }

    apply { remove(); }
}

// Cells of a packet are those of its region, from 0 on. In registers those of a region begin at its base, with the bank in the bit
// above them.
control CellsInside(inout headers_t hdr) {
    action keep(bit<16> mask) {
        hdr.entries[0].cell = hdr.entries[0].cell & mask;
        hdr.entries[1].cell = hdr.entries[1].cell & mask;
        hdr.entries[2].cell = hdr.entries[2].cell & mask;
        hdr.entries[3].cell = hdr.entries[3].cell & mask;
        hdr.entries[4].cell = hdr.entries[4].cell & mask;
        hdr.entries[5].cell = hdr.entries[5].cell & mask;
        hdr.entries[6].cell = hdr.entries[6].cell & mask;
        hdr.entries[7].cell = hdr.entries[7].cell & mask;
        hdr.entries[8].cell = hdr.entries[8].cell & mask;
        hdr.entries[9].cell = hdr.entries[9].cell & mask;
        hdr.entries[10].cell = hdr.entries[10].cell & mask;
        hdr.entries[11].cell = hdr.entries[11].cell & mask;
        hdr.entries[12].cell = hdr.entries[12].cell & mask;
        hdr.entries[13].cell = hdr.entries[13].cell & mask;
        hdr.entries[14].cell = hdr.entries[14].cell & mask;
        hdr.entries[15].cell = hdr.entries[15].cell & mask;
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

control CellsOfBank(inout headers_t hdr, in metadata_t meta) {
    action place(bit<16> base) {
        hdr.entries[0].cell = hdr.entries[0].cell | base;
        hdr.entries[1].cell = hdr.entries[1].cell | base;
        hdr.entries[2].cell = hdr.entries[2].cell | base;
        hdr.entries[3].cell = hdr.entries[3].cell | base;
        hdr.entries[4].cell = hdr.entries[4].cell | base;
        hdr.entries[5].cell = hdr.entries[5].cell | base;
        hdr.entries[6].cell = hdr.entries[6].cell | base;
        hdr.entries[7].cell = hdr.entries[7].cell | base;
        hdr.entries[8].cell = hdr.entries[8].cell | base;
        hdr.entries[9].cell = hdr.entries[9].cell | base;
        hdr.entries[10].cell = hdr.entries[10].cell | base;
        hdr.entries[11].cell = hdr.entries[11].cell | base;
        hdr.entries[12].cell = hdr.entries[12].cell | base;
        hdr.entries[13].cell = hdr.entries[13].cell | base;
        hdr.entries[14].cell = hdr.entries[14].cell | base;
        hdr.entries[15].cell = hdr.entries[15].cell | base;
    }

    table bases {
        key = {
            meta.index : exact @name("index");
            meta.bank_of_action : exact @name("bank");
        }
        actions = { place; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 2 * REGIONS;
    }

    apply { bases.apply(); }
}
