// Registers of the switch, for the v1model, which a packet reads and writes once each, as hardware does. The rest of the program
// does not access registers, so that another target needs these controls and a top file of its own.

#pragma once

#include "../headers.p4"

// The round that takes packets and the one that is durable. A FLIP sets both.
control Clock(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(REGIONS) clocks;

    apply {
        if (meta.form == Form.FLIP && meta.is_agent == 1 && meta.is_fit == 1) {
            clocks.write((bit<32>)meta.index, hdr.libra.clock);
            meta.clock = hdr.libra.clock;
        } else {
            clocks.read(meta.clock, (bit<32>)meta.index);
        }
    }
}

// Two flags: pushes are taken, values may be read. A FLIP has them in its tag.
control Conditions(in headers_t hdr, inout metadata_t meta) {
    register<bit<8>>(REGIONS) conditions;

    apply {
        if (meta.form == Form.FLIP && meta.is_agent == 1 && meta.is_fit == 1) {
            conditions.write((bit<32>)meta.index, hdr.libra.tag_high[7:0]);
            meta.conditions = hdr.libra.tag_high[7:0];
        } else {
            conditions.read(meta.conditions, (bit<32>)meta.index);
        }
    }
}

// Number of pushes since the banks were swapped, duplicates included; it determines if the bank has room for one more (rule D4).
control Room(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(REGIONS) arrivals;

    apply {
        bit<32> count;
        arrivals.read(count, (bit<32>)meta.index);
#ifdef SUMS_BY_TABLE
        if (ALL_TURNS(meta) && meta.is_clock == 1) {
            meta.is_turn = 1;
#else
        if (meta.form == Form.PUSH && meta.is_worker == 1 && meta.is_fit == 1) {
#endif
            if (count < meta.room) {
                arrivals.write((bit<32>)meta.index, count + 1);
                meta.has_room = 1;
            }
        } else if (meta.form == Form.FLIP && meta.is_agent == 1 && meta.is_fit == 1 && hdr.libra.flags & FLAG_LAST != 0) {
            arrivals.write((bit<32>)meta.index, 0);
        }
    }
}

// One past the number of the last packet that each entry has seen, or 0. The numbers of an entry differ by whole windows, so the order
// of numbers is that of generations (rule D1).
control Window(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(FLOWS * WINDOW) generations;

    apply {
        bit<32> entry = (bit<32>)(meta.flow ++ hdr.libra.seq[WINDOW_BITS - 1:0]);
        bit<32> before;
        generations.read(before, entry);
        if (meta.form == Form.PUSH && meta.is_worker == 1 && meta.is_fit == 1) {
            if (before >= meta.seq_after) {
                meta.is_seen = 1;
            } else if (meta.is_sound == 1 && meta.has_room == 1 && meta.conditions & CONDITION_ACTIVE != 0) {
                generations.write(entry, meta.seq_after);
                meta.is_new = 1;
            }
        } else if (meta.form == Form.REMEMBER && meta.is_agent == 1 && meta.is_fit == 1) {
            generations.write(entry, hdr.libra.tag_low);
        }
    }
}

// Bank that took the last packet of each entry.
control WindowBank(in headers_t hdr, inout metadata_t meta) {
    register<bit<8>>(FLOWS * WINDOW) banks;

    apply {
        bit<32> entry = (bit<32>)(meta.flow ++ hdr.libra.seq[WINDOW_BITS - 1:0]);
        if (meta.is_new == 1) {
            banks.write(entry, (bit<8>)meta.bank);
        } else if (meta.form == Form.REMEMBER && meta.is_agent == 1 && meta.is_fit == 1) {
            banks.write(entry, (bit<8>)meta.bank_idle);
        } else {
            banks.read(meta.seen_bank, entry);
        }
    }
}

// Packets that the active bank has taken: pushes in the lower half, those with LAST in the upper one. A FLIP that swaps the banks starts at zero,
// and gets what was taken until then.
control Taken(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(REGIONS) counts;

    apply {
        counts.read(meta.taken, (bit<32>)meta.index);
        if (meta.is_new == 1) {
            meta.taken = meta.taken + meta.taken_more;
            counts.write((bit<32>)meta.index, meta.taken);
        } else if (meta.form == Form.FLIP && meta.is_agent == 1 && meta.is_fit == 1 && hdr.libra.flags & FLAG_LAST != 0) {
            counts.write((bit<32>)meta.index, 0);
        }
    }
}

// Parts of an acked set (rule E2): of each flow and bank one past the highest number, and a bit for each entry of the window that
// changes whenever the entry takes a packet. By the sender rule no entry can be more than one packet behind the highest number, so the
// bits of all rounds together tell which of two it is. A DRAIN reads and clears those of the idle bank.
control AckedBits(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(ACKED_WORDS) words;

    apply {
        bit<32> word = (bit<32>)(meta.bank_of_action ++ meta.flow ++ hdr.libra.seq[WINDOW_BITS - 1:5]);
        words.read(meta.acked_bits, word);
        if (meta.is_new == 1) {
            words.write(word, meta.acked_bits ^ meta.acked_bit);
        } else if (meta.form == Form.DRAIN && meta.is_agent == 1 && meta.is_fit == 1) {
            words.write(word, 0);
        }
    }
}

control AckedNext(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(2 * FLOWS) next;

    apply {
        bit<32> flow = (bit<32>)(meta.bank_of_action ++ meta.flow);
        next.read(meta.acked_next, flow);
        if (meta.is_new == 1) {
            if (meta.seq_after > meta.acked_next) {
                next.write(flow, meta.seq_after);
            }
        } else if (meta.form == Form.DRAIN && meta.is_agent == 1 && meta.is_fit == 1) {
            next.write(flow, 0);
        }
    }
}

#ifdef SUMS_BY_TABLE
// Number of changes of the sum of each cell of a lane, in either bank. A push that has read it compares; a summand of zero changes nothing, as
// padding is, so that it ends no turn.
control Turn(in entry_h entry, inout bit<32> turn, in bit<1> has_read, in metadata_t meta, inout bit<8> is_turn) {
    register<bit<32>>(CELLS) turns;

    apply {
        bit<32> cell = (bit<32>)entry.cell[CELL_BITS - 1:0];
        bit<32> now;
        turns.read(now, cell);
        if (meta.form == Form.PUSH && meta.is_worker == 1 && meta.is_fit == 1) {
            if (has_read == 0) {
                turn = now;
            } else if (now == turn) {
                is_turn = 1;
                if (entry.value != 0) {
                    turns.write(cell, now + 1);
                }
            }
        }
    }
}
#endif

// The registers of one lane: the sums of both banks, and the values. A sum of floats comes from `adder.p4`, which needs the one before it.
#ifdef SUMS_BY_TABLE
control Lane(inout entry_h entry, inout bit<32> float_sum, in metadata_t meta) {
#else
control Lane(inout entry_h entry, in metadata_t meta) {
#endif
    register<bit<32>>(2 * CELLS) sums;
    register<bit<32>>(CELLS) values;

    apply {
        bit<32> sum_at = (bit<32>)entry.cell[CELL_BITS:0];
        bit<32> value_at = (bit<32>)entry.cell[CELL_BITS - 1:0];
        bit<32> sum;
        if (meta.sum_action == SumAction.ADD) {
#ifdef SUMS_BY_TABLE
            sums.write(sum_at, float_sum);
        } else if (meta.sum_action == SumAction.READ) {
            sums.read(float_sum, sum_at);
#else
            sums.read(sum, sum_at);
            sums.write(sum_at, sum + entry.value);
#endif
        } else if (meta.sum_action == SumAction.TAKE) {
            sums.read(sum, sum_at);
            sums.write(sum_at, 0);
            entry.value = sum;
        }
        if (meta.value_action == ValueAction.READ) {
            values.read(entry.value, value_at);
        } else if (meta.value_action == ValueAction.WRITE) {
            values.write(value_at, entry.value);
        }
    }
}
