// States of the parser that take the entries as they are, one for each lane. Written by `libra p4 generate`: do not edit.

    state rest0 {
        packet.extract(hdr.entries[0]);
        transition rest1;
    }

    state rest1 {
        packet.extract(hdr.entries[1]);
        transition accept;
    }
