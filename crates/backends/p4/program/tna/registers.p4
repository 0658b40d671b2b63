// Registers of the switch, for Tofino: each register is accessed once by a packet, by one of a few actions. `v1model/registers.p4` has
// the same controls and describes them.
//
// Tables select the action where a place in a register is made of more than one field, as all actions of a register must
// be at the same place; what makes a place (a hash that changes nothing) cannot be part of a default action.

#pragma once

#include "../headers.p4"

control Clock(in headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<8>>(REGIONS) clocks;
    RegisterAction<bit<32>, bit<8>, bit<32>>(clocks) read = {
        void apply(inout bit<32> clock, out bit<32> result) { result = clock; }
    };
    RegisterAction<bit<32>, bit<8>, bit<32>>(clocks) set = {
        void apply(inout bit<32> clock, out bit<32> result) {
            clock = hdr.libra.clock;
            result = hdr.libra.clock;
        }
    };

    apply {
        if (meta.form == Form.FLIP && meta.is_agent == 1 && meta.is_fit == 1) {
            meta.clock = set.execute(meta.index);
        } else {
            meta.clock = read.execute(meta.index);
        }
    }
}

control Conditions(in headers_t hdr, inout metadata_t meta) {
    Register<bit<8>, bit<8>>(REGIONS) conditions;
    RegisterAction<bit<8>, bit<8>, bit<8>>(conditions) read = {
        void apply(inout bit<8> condition, out bit<8> result) { result = condition; }
    };
    RegisterAction<bit<8>, bit<8>, bit<8>>(conditions) set = {
        void apply(inout bit<8> condition, out bit<8> result) {
            condition = hdr.libra.tag_high[7:0];
            result = hdr.libra.tag_high[7:0];
        }
    };

    apply {
        if (meta.form == Form.FLIP && meta.is_agent == 1 && meta.is_fit == 1) {
            meta.conditions = set.execute(meta.index);
        } else {
            meta.conditions = read.execute(meta.index);
        }
    }
}

control Room(in headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<8>>(REGIONS) arrivals;
    RegisterAction<bit<32>, bit<8>, bit<1>>(arrivals) arrive = {
        void apply(inout bit<32> count, out bit<1> result) {
            if (count < meta.room) {
                count = count + 1;
                result = 1;
            } else {
                result = 0;
            }
        }
    };
    RegisterAction<bit<32>, bit<8>, bit<1>>(arrivals) begin = {
        void apply(inout bit<32> count) { count = 0; }
    };

    apply {
#ifdef SUMS_BY_TABLE
        if (ALL_TURNS(meta) && meta.is_clock == 1) {
            meta.is_turn = 1;
#else
        if (meta.form == Form.PUSH && meta.is_worker == 1 && meta.is_fit == 1) {
#endif
            meta.has_room = arrive.execute(meta.index);
        } else if (meta.form == Form.FLIP && meta.is_agent == 1 && meta.is_fit == 1 && hdr.libra.flags & FLAG_LAST != 0) {
            begin.execute(meta.index);
        }
    }
}

control Window(in headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(FLOWS * WINDOW) generations;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) entry;
    RegisterAction<bit<32>, bit<16>, bit<1>>(generations) take = {
        void apply(inout bit<32> number, out bit<1> result) {
            if (number < meta.seq_after) {
                number = meta.seq_after;
                result = 1;
            } else {
                result = 0;
            }
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<1>>(generations) look = {
        void apply(inout bit<32> number, out bit<1> result) {
            if (number < meta.seq_after) {
                result = 0;
            } else {
                result = 1;
            }
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<1>>(generations) remember = {
        void apply(inout bit<32> number) { number = hdr.libra.tag_low; }
    };

    action take_packet() { meta.is_new = take.execute(entry.get({ meta.flow, hdr.libra.seq[WINDOW_BITS - 1:0] })); }
    action look_only() { meta.is_seen = look.execute(entry.get({ meta.flow, hdr.libra.seq[WINDOW_BITS - 1:0] })); }
    action remember_packet() { remember.execute(entry.get({ meta.flow, hdr.libra.seq[WINDOW_BITS - 1:0] })); }

    table ways {
        key = {
            meta.form : ternary;
            meta.is_worker : ternary;
            meta.is_agent : ternary;
            meta.is_fit : ternary;
            meta.is_sound : ternary;
            meta.conditions : ternary;
            meta.has_room : ternary;
        }
        actions = { take_packet; look_only; remember_packet; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Form.PUSH, 1, _, 1, 1, CONDITION_ACTIVE &&& CONDITION_ACTIVE, 1) : take_packet();
            (Form.PUSH, 1, _, 1, 1, CONDITION_ACTIVE &&& CONDITION_ACTIVE, 0) : look_only();
            (Form.REMEMBER, _, 1, 1, _, _, _) : remember_packet();
        }
        size = 4;
    }

    apply { ways.apply(); }
}

control WindowBank(in headers_t hdr, inout metadata_t meta) {
    Register<bit<8>, bit<16>>(FLOWS * WINDOW) banks;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) entry;
    RegisterAction<bit<8>, bit<16>, bit<8>>(banks) set_active = {
        void apply(inout bit<8> bank) { bank = (bit<8>)meta.bank; }
    };
    RegisterAction<bit<8>, bit<16>, bit<8>>(banks) set_idle = {
        void apply(inout bit<8> bank) { bank = (bit<8>)meta.bank_idle; }
    };
    RegisterAction<bit<8>, bit<16>, bit<8>>(banks) read = {
        void apply(inout bit<8> bank, out bit<8> result) { result = bank; }
    };

    action take() { set_active.execute(entry.get({ meta.flow, hdr.libra.seq[WINDOW_BITS - 1:0] })); }
    action remember() { set_idle.execute(entry.get({ meta.flow, hdr.libra.seq[WINDOW_BITS - 1:0] })); }
    action look() { meta.seen_bank = read.execute(entry.get({ meta.flow, hdr.libra.seq[WINDOW_BITS - 1:0] })); }

    table ways {
        key = {
            meta.form : ternary;
            meta.is_new : ternary;
            meta.is_agent : ternary;
            meta.is_fit : ternary;
        }
        actions = { take; remember; look; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Form.PUSH, 1, _, _) : take();
            (Form.REMEMBER, _, 1, 1) : remember();
            (_, _, _, _) : look();
        }
        size = 4;
    }

    apply { ways.apply(); }
}

control Taken(in headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<8>>(REGIONS) counts;
    RegisterAction<bit<32>, bit<8>, bit<32>>(counts) add = {
        void apply(inout bit<32> count, out bit<32> result) {
            count = count + meta.taken_more;
            result = count;
        }
    };
    RegisterAction<bit<32>, bit<8>, bit<32>>(counts) begin = {
        void apply(inout bit<32> count, out bit<32> result) {
            result = count;
            count = 0;
        }
    };
    RegisterAction<bit<32>, bit<8>, bit<32>>(counts) read = {
        void apply(inout bit<32> count, out bit<32> result) { result = count; }
    };

    action count_packet() { meta.taken = add.execute(meta.index); }
    action restart() { meta.taken = begin.execute(meta.index); }
    action look() { meta.taken = read.execute(meta.index); }

    table ways {
        key = {
            meta.form : ternary;
            meta.is_new : ternary;
            meta.is_agent : ternary;
            meta.is_fit : ternary;
            hdr.libra.flags : ternary;
        }
        actions = { count_packet; restart; look; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Form.PUSH, 1, _, _, _) : count_packet();
            (Form.FLIP, _, 1, 1, FLAG_LAST &&& FLAG_LAST) : restart();
            (_, _, _, _, _) : look();
        }
        size = 4;
    }

    apply { ways.apply(); }
}

control AckedBits(in headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<ACKED_WORD_BITS>>(ACKED_WORDS) words;
    Hash<bit<ACKED_WORD_BITS>>(HashAlgorithm_t.IDENTITY) word;
    RegisterAction<bit<32>, bit<ACKED_WORD_BITS>, bit<32>>(words) change = {
        void apply(inout bit<32> bits) { bits = bits ^ meta.acked_bit; }
    };
    RegisterAction<bit<32>, bit<ACKED_WORD_BITS>, bit<32>>(words) take = {
        void apply(inout bit<32> bits, out bit<32> result) {
            result = bits;
            bits = 0;
        }
    };

    action mark() { change.execute(word.get({ meta.bank_of_action, meta.flow, hdr.libra.seq[WINDOW_BITS - 1:5] })); }
    action drain() { meta.acked_bits = take.execute(word.get({ meta.bank_of_action, meta.flow, hdr.libra.seq[WINDOW_BITS - 1:5] })); }

    table ways {
        key = {
            meta.form : ternary;
            meta.is_new : ternary;
            meta.is_agent : ternary;
            meta.is_fit : ternary;
        }
        actions = { mark; drain; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Form.PUSH, 1, _, _) : mark();
            (Form.DRAIN, _, 1, 1) : drain();
        }
        size = 4;
    }

    apply { ways.apply(); }
}

control AckedNext(in headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<(1 + FLOW_BITS)>>(2 * FLOWS) next;
    Hash<bit<(1 + FLOW_BITS)>>(HashAlgorithm_t.IDENTITY) flow;
    RegisterAction<bit<32>, bit<(1 + FLOW_BITS)>, bit<32>>(next) raise = {
        void apply(inout bit<32> number) { number = max(number, meta.seq_after); }
    };
    RegisterAction<bit<32>, bit<(1 + FLOW_BITS)>, bit<32>>(next) take = {
        void apply(inout bit<32> number, out bit<32> result) {
            result = number;
            number = 0;
        }
    };

    action mark() { raise.execute(flow.get({ meta.bank_of_action, meta.flow })); }
    action drain() { meta.acked_next = take.execute(flow.get({ meta.bank_of_action, meta.flow })); }

    table ways {
        key = {
            meta.form : ternary;
            meta.is_new : ternary;
            meta.is_agent : ternary;
            meta.is_fit : ternary;
        }
        actions = { mark; drain; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Form.PUSH, 1, _, _) : mark();
            (Form.DRAIN, _, 1, 1) : drain();
        }
        size = 4;
    }

    apply { ways.apply(); }
}

#ifdef SUMS_BY_TABLE
control Turn(in entry_h entry, inout bit<32> turn, in bit<1> has_read, in metadata_t meta, inout bit<8> is_turn) {
    Register<bit<32>, bit<CELL_BITS>>(CELLS) turns;
    RegisterAction<bit<32>, bit<CELL_BITS>, bit<32>>(turns) read = {
        void apply(inout bit<32> count, out bit<32> result) { result = count; }
    };
    RegisterAction<bit<32>, bit<CELL_BITS>, bit<8>>(turns) compare = {
        void apply(inout bit<32> count, out bit<8> result) {
            if (count == turn) {
                result = 1;
            } else {
                result = 0;
            }
        }
    };
    RegisterAction<bit<32>, bit<CELL_BITS>, bit<8>>(turns) end = {
        void apply(inout bit<32> count, out bit<8> result) {
            if (count == turn) {
                count = count + 1;
                result = 1;
            } else {
                result = 0;
            }
        }
    };

    action read_turn() { turn = read.execute(entry.cell[CELL_BITS - 1:0]); }
    action compare_turn() { is_turn = compare.execute(entry.cell[CELL_BITS - 1:0]); }
    action end_turn() { is_turn = end.execute(entry.cell[CELL_BITS - 1:0]); }

    table ways {
        key = {
            meta.form : ternary;
            meta.is_worker : ternary;
            meta.is_fit : ternary;
            has_read : ternary;
            entry.value : ternary;
        }
        actions = { read_turn; compare_turn; end_turn; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Form.PUSH, 1, 1, 0, _) : read_turn();
            (Form.PUSH, 1, 1, 1, 0) : compare_turn();
            (Form.PUSH, 1, 1, 1, _) : end_turn();
        }
        size = 4;
    }

    apply { ways.apply(); }
}

control Lane(inout entry_h entry, inout bit<32> float_sum, in metadata_t meta) {
#else
control Lane(inout entry_h entry, in metadata_t meta) {
#endif
    Register<bit<32>, bit<(CELL_BITS + 1)>>(2 * CELLS) sums;
    RegisterAction<bit<32>, bit<(CELL_BITS + 1)>, bit<32>>(sums) add_value = {
#ifdef SUMS_BY_TABLE
        void apply(inout bit<32> sum) { sum = float_sum; }
#else
        void apply(inout bit<32> sum) { sum = sum + entry.value; }
#endif
    };
#ifdef SUMS_BY_TABLE
    RegisterAction<bit<32>, bit<(CELL_BITS + 1)>, bit<32>>(sums) read_sum = {
        void apply(inout bit<32> sum, out bit<32> result) { result = sum; }
    };
#endif
    RegisterAction<bit<32>, bit<(CELL_BITS + 1)>, bit<32>>(sums) take_sum = {
        void apply(inout bit<32> sum, out bit<32> result) {
            result = sum;
            sum = 0;
        }
    };
    Register<bit<32>, bit<CELL_BITS>>(CELLS) values;
    RegisterAction<bit<32>, bit<CELL_BITS>, bit<32>>(values) read_value = {
        void apply(inout bit<32> value, out bit<32> result) { result = value; }
    };
    RegisterAction<bit<32>, bit<CELL_BITS>, bit<32>>(values) write_value = {
        void apply(inout bit<32> value) { value = entry.value; }
    };

    apply {
        // Not two tables with keys: what a DRAIN takes out would then be something that a write may need, a stage later.
        if (meta.sum_action == SumAction.TAKE) {
            entry.value = take_sum.execute(entry.cell[CELL_BITS:0]);
#ifdef SUMS_BY_TABLE
        } else if (meta.sum_action == SumAction.READ) {
            float_sum = read_sum.execute(entry.cell[CELL_BITS:0]);
#endif
        } else {
            if (meta.sum_action == SumAction.ADD) {
                add_value.execute(entry.cell[CELL_BITS:0]);
            }
            if (meta.value_action == ValueAction.READ) {
                entry.value = read_value.execute(entry.cell[CELL_BITS - 1:0]);
            } else if (meta.value_action == ValueAction.WRITE) {
                write_value.execute(entry.cell[CELL_BITS - 1:0]);
            }
        }
    }
}
