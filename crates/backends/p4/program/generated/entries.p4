// States of the parser that take the entries and look at them, one for each lane. Written by `libra p4 generate`: do not edit.

    state push0 {
        packet.extract(hdr.entries[0]);
        transition select(hdr.entries[0].cell[15:CELL_BITS], hdr.entries[0].value[31:BOUND_BITS]) {
            (0, 0): push1;
            (0, VALUE_NEGATIVE): push1;
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
        transition select(hdr.entries[1].cell[15:CELL_BITS], hdr.entries[1].value[31:BOUND_BITS]) {
            (0, 0): push2;
            (0, VALUE_NEGATIVE): push2;
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
        transition select(hdr.entries[2].cell[15:CELL_BITS], hdr.entries[2].value[31:BOUND_BITS]) {
            (0, 0): push3;
            (0, VALUE_NEGATIVE): push3;
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
        transition select(hdr.entries[3].cell[15:CELL_BITS], hdr.entries[3].value[31:BOUND_BITS]) {
            (0, 0): push4;
            (0, VALUE_NEGATIVE): push4;
            default: rest4;
        }
    }

    state cell3 {
        packet.extract(hdr.entries[3]);
        transition select(hdr.entries[3].cell[15:CELL_BITS]) {
            0: cell4;
            default: rest4;
        }
    }

    state push4 {
        packet.extract(hdr.entries[4]);
        transition select(hdr.entries[4].cell[15:CELL_BITS], hdr.entries[4].value[31:BOUND_BITS]) {
            (0, 0): push5;
            (0, VALUE_NEGATIVE): push5;
            default: rest5;
        }
    }

    state cell4 {
        packet.extract(hdr.entries[4]);
        transition select(hdr.entries[4].cell[15:CELL_BITS]) {
            0: cell5;
            default: rest5;
        }
    }

    state push5 {
        packet.extract(hdr.entries[5]);
        transition select(hdr.entries[5].cell[15:CELL_BITS], hdr.entries[5].value[31:BOUND_BITS]) {
            (0, 0): push6;
            (0, VALUE_NEGATIVE): push6;
            default: rest6;
        }
    }

    state cell5 {
        packet.extract(hdr.entries[5]);
        transition select(hdr.entries[5].cell[15:CELL_BITS]) {
            0: cell6;
            default: rest6;
        }
    }

    state push6 {
        packet.extract(hdr.entries[6]);
        transition select(hdr.entries[6].cell[15:CELL_BITS], hdr.entries[6].value[31:BOUND_BITS]) {
            (0, 0): push7;
            (0, VALUE_NEGATIVE): push7;
            default: rest7;
        }
    }

    state cell6 {
        packet.extract(hdr.entries[6]);
        transition select(hdr.entries[6].cell[15:CELL_BITS]) {
            0: cell7;
            default: rest7;
        }
    }

    state push7 {
        packet.extract(hdr.entries[7]);
        transition select(hdr.entries[7].cell[15:CELL_BITS], hdr.entries[7].value[31:BOUND_BITS]) {
            (0, 0): push8;
            (0, VALUE_NEGATIVE): push8;
            default: rest8;
        }
    }

    state cell7 {
        packet.extract(hdr.entries[7]);
        transition select(hdr.entries[7].cell[15:CELL_BITS]) {
            0: cell8;
            default: rest8;
        }
    }

    state push8 {
        packet.extract(hdr.entries[8]);
        transition select(hdr.entries[8].cell[15:CELL_BITS], hdr.entries[8].value[31:BOUND_BITS]) {
            (0, 0): push9;
            (0, VALUE_NEGATIVE): push9;
            default: rest9;
        }
    }

    state cell8 {
        packet.extract(hdr.entries[8]);
        transition select(hdr.entries[8].cell[15:CELL_BITS]) {
            0: cell9;
            default: rest9;
        }
    }

    state push9 {
        packet.extract(hdr.entries[9]);
        transition select(hdr.entries[9].cell[15:CELL_BITS], hdr.entries[9].value[31:BOUND_BITS]) {
            (0, 0): push10;
            (0, VALUE_NEGATIVE): push10;
            default: rest10;
        }
    }

    state cell9 {
        packet.extract(hdr.entries[9]);
        transition select(hdr.entries[9].cell[15:CELL_BITS]) {
            0: cell10;
            default: rest10;
        }
    }

    state push10 {
        packet.extract(hdr.entries[10]);
        transition select(hdr.entries[10].cell[15:CELL_BITS], hdr.entries[10].value[31:BOUND_BITS]) {
            (0, 0): push11;
            (0, VALUE_NEGATIVE): push11;
            default: rest11;
        }
    }

    state cell10 {
        packet.extract(hdr.entries[10]);
        transition select(hdr.entries[10].cell[15:CELL_BITS]) {
            0: cell11;
            default: rest11;
        }
    }

    state push11 {
        packet.extract(hdr.entries[11]);
        transition select(hdr.entries[11].cell[15:CELL_BITS], hdr.entries[11].value[31:BOUND_BITS]) {
            (0, 0): push12;
            (0, VALUE_NEGATIVE): push12;
            default: rest12;
        }
    }

    state cell11 {
        packet.extract(hdr.entries[11]);
        transition select(hdr.entries[11].cell[15:CELL_BITS]) {
            0: cell12;
            default: rest12;
        }
    }

    state push12 {
        packet.extract(hdr.entries[12]);
        transition select(hdr.entries[12].cell[15:CELL_BITS], hdr.entries[12].value[31:BOUND_BITS]) {
            (0, 0): push13;
            (0, VALUE_NEGATIVE): push13;
            default: rest13;
        }
    }

    state cell12 {
        packet.extract(hdr.entries[12]);
        transition select(hdr.entries[12].cell[15:CELL_BITS]) {
            0: cell13;
            default: rest13;
        }
    }

    state push13 {
        packet.extract(hdr.entries[13]);
        transition select(hdr.entries[13].cell[15:CELL_BITS], hdr.entries[13].value[31:BOUND_BITS]) {
            (0, 0): push14;
            (0, VALUE_NEGATIVE): push14;
            default: rest14;
        }
    }

    state cell13 {
        packet.extract(hdr.entries[13]);
        transition select(hdr.entries[13].cell[15:CELL_BITS]) {
            0: cell14;
            default: rest14;
        }
    }

    state push14 {
        packet.extract(hdr.entries[14]);
        transition select(hdr.entries[14].cell[15:CELL_BITS], hdr.entries[14].value[31:BOUND_BITS]) {
            (0, 0): push15;
            (0, VALUE_NEGATIVE): push15;
            default: rest15;
        }
    }

    state cell14 {
        packet.extract(hdr.entries[14]);
        transition select(hdr.entries[14].cell[15:CELL_BITS]) {
            0: cell15;
            default: rest15;
        }
    }

    state push15 {
        packet.extract(hdr.entries[15]);
        transition select(hdr.entries[15].cell[15:CELL_BITS], hdr.entries[15].value[31:BOUND_BITS]) {
            (0, 0): sound;
            (0, VALUE_NEGATIVE): sound;
            default: accept;
        }
    }

    state cell15 {
        packet.extract(hdr.entries[15]);
        transition select(hdr.entries[15].cell[15:CELL_BITS]) {
            0: sound;
            default: accept;
        }
    }
