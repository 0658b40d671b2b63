// States of the parser that take the entries as they are, one for each lane. Written by `libra p4 generate`: do not edit.

    state rest0 {
        packet.extract(hdr.entries[0]);
        transition rest1;
    }

    state rest1 {
        packet.extract(hdr.entries[1]);
        transition rest2;
    }

    state rest2 {
        packet.extract(hdr.entries[2]);
        transition rest3;
    }

    state rest3 {
        packet.extract(hdr.entries[3]);
        transition rest4;
    }

    state rest4 {
        packet.extract(hdr.entries[4]);
        transition rest5;
    }

    state rest5 {
        packet.extract(hdr.entries[5]);
        transition rest6;
    }

    state rest6 {
        packet.extract(hdr.entries[6]);
        transition rest7;
    }

    state rest7 {
        packet.extract(hdr.entries[7]);
        transition rest8;
    }

    state rest8 {
        packet.extract(hdr.entries[8]);
        transition rest9;
    }

    state rest9 {
        packet.extract(hdr.entries[9]);
        transition rest10;
    }

    state rest10 {
        packet.extract(hdr.entries[10]);
        transition rest11;
    }

    state rest11 {
        packet.extract(hdr.entries[11]);
        transition rest12;
    }

    state rest12 {
        packet.extract(hdr.entries[12]);
        transition rest13;
    }

    state rest13 {
        packet.extract(hdr.entries[13]);
        transition rest14;
    }

    state rest14 {
        packet.extract(hdr.entries[14]);
        transition rest15;
    }

    state rest15 {
        packet.extract(hdr.entries[15]);
        transition accept;
    }
