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
            (0, NOT_FINITE): rest2;
            (0, _): push2;
            default: rest2;
        }
    }

    state cell1 {
        packet.extract(hdr.entries[1]);
        transition select(hdr.entries[1].cell[15:CELL_BITS]) {
            0: cell2;
            default: rest2;
        }
    }

    state push2 {
        packet.extract(hdr.entries[2]);
        transition select(hdr.entries[2].cell[15:CELL_BITS], hdr.entries[2].value[30:23]) {
            (0, NOT_FINITE): rest3;
            (0, _): push3;
            default: rest3;
        }
    }

    state cell2 {
        packet.extract(hdr.entries[2]);
        transition select(hdr.entries[2].cell[15:CELL_BITS]) {
            0: cell3;
            default: rest3;
        }
    }

    state push3 {
        packet.extract(hdr.entries[3]);
        transition select(hdr.entries[3].cell[15:CELL_BITS], hdr.entries[3].value[30:23]) {
            (0, NOT_FINITE): accept;
            (0, _): sound;
            default: accept;
        }
    }

    state cell3 {
        packet.extract(hdr.entries[3]);
        transition select(hdr.entries[3].cell[15:CELL_BITS]) {
            0: sound;
            default: accept;
        }
    }
