// States of the parser that take the entries and look at them, one for each lane. Written by `libra p4 generate`: do not edit.

    state push0 {
        packet.extract(hdr.entries[0]);
        transition select(hdr.entries[0].cell[15:CELL_BITS], hdr.entries[0].value[30:23]) {
            (0, NOT_FINITE): rest1;
            (0, _): push1;
            default: rest1;
        }
    }

    state cell0 {
        packet.extract(hdr.entries[0]);
        transition select(hdr.entries[0].cell[15:CELL_BITS]) {
            0: cell1;
            default: rest1;
        }
    }

    state push1 {
        packet.extract(hdr.entries[1]);
        transition select(hdr.entries[1].cell[15:CELL_BITS], hdr.entries[1].value[30:23]) {
            (0, NOT_FINITE): accept;
            (0, _): sound;
            default: accept;
        }
    }

    state cell1 {
        packet.extract(hdr.entries[1]);
        transition select(hdr.entries[1].cell[15:CELL_BITS]) {
            0: sound;
            default: accept;
        }
    }
