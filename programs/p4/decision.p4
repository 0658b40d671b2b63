// What becomes of a packet of Libra, by everything that is known of it: the order of rule W6.

#pragma once

#include "headers.p4"

control Decision(inout headers_t hdr, inout metadata_t meta) {
    action drop() { meta.fate = Fate.DROPPED; }
    action refuse(bit<16> reason) {
        meta.fate = Fate.REFUSED;
        meta.reason = reason;
    }
    action push(ValueDeed values) {
        meta.fate = Fate.PUSHED;
        meta.sum_deed = SumDeed.ADD;
        meta.value_deed = values;
    }
    action duplicate(ValueDeed values) {
        meta.fate = Fate.DUPLICATE;
        meta.value_deed = values;
    }
    action pull() {
        meta.fate = Fate.PULLED;
        meta.value_deed = ValueDeed.READ;
    }
    action probe() { meta.fate = Fate.PULLED; }
    action install() {
        meta.fate = Fate.INSTALLED;
        meta.value_deed = ValueDeed.WRITE;
    }
    action drain() {
        meta.fate = Fate.DRAINED;
        meta.sum_deed = SumDeed.TAKE;
    }
    action flip() { meta.fate = Fate.FLIPPED; }
    action remember() { meta.fate = Fate.REMEMBERED; }

    table fates {
        key = {
            meta.form : ternary;
            meta.is_worker : ternary;
            meta.is_agent : ternary;
            meta.is_known : ternary;
            meta.plan_off : ternary;
            meta.is_fit : ternary;
            meta.conditions : ternary;
            meta.is_sound : ternary;
            meta.is_new : ternary;
            meta.is_seen : ternary;
            meta.has_room : ternary;
            hdr.libra.flags : ternary;
        }
        actions = { drop; refuse; push; duplicate; pull; probe; install; drain; flip; remember; }
        const default_action = drop();
        const entries = {
            // form, worker, agent, known, plan, fit, conditions, sound, new, seen, room, flags
            (Form.PUSH, 0, _, _, _, _, _, _, _, _, _, _) : drop();
            (Form.PUSH, 1, _, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.PUSH, 1, _, 1, _, 1, 0 &&& CONDITION_ACTIVE, _, _, _, _, _) : refuse(INACTIVE);
            (Form.PUSH, 1, _, 1, _, 1, _, 0, _, _, _, _) : drop();
            (Form.PUSH, 1, _, 1, _, 1, CONDITION_READABLE &&& CONDITION_READABLE, 1, 1, _, _, FLAG_VALUES &&& FLAG_VALUES) : push(ValueDeed.READ);
            (Form.PUSH, 1, _, 1, _, 1, _, 1, 1, _, _, _) : push(ValueDeed.NONE);
            (Form.PUSH, 1, _, 1, _, 1, _, 1, 0, 0, 0, _) : refuse(BANK_FULL);
            (Form.PUSH, 1, _, 1, _, 1, CONDITION_READABLE &&& CONDITION_READABLE, 1, _, _, _, FLAG_VALUES &&& FLAG_VALUES) : duplicate(ValueDeed.READ);
            (Form.PUSH, 1, _, 1, _, 1, _, 1, _, _, _, _) : duplicate(ValueDeed.NONE);
            (Form.PUSH, 1, _, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.PUSH, 1, _, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            (Form.PULL, 1, _, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.PULL, 1, _, 1, _, 1, 0 &&& CONDITION_READABLE, _, _, _, _, _) : refuse(NOT_INSTALLED);
            (Form.PULL, 1, _, 1, _, 1, _, 1, _, _, _, _) : pull();
            (Form.PULL, 1, _, 1, _, 1, _, 0, _, _, _, _) : drop();
            (Form.PULL, 1, _, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.PULL, 1, _, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            (Form.PROBE, 1, _, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.PROBE, 1, _, 1, _, 1, _, _, _, _, _, _) : probe();
            (Form.PROBE, 1, _, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.PROBE, 1, _, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            (Form.PULL, _, 1, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.PULL, _, 1, 1, _, 1, 0 &&& CONDITION_READABLE, _, _, _, _, _) : refuse(NOT_INSTALLED);
            (Form.PULL, _, 1, 1, _, 1, _, 1, _, _, _, _) : pull();
            (Form.PULL, _, 1, 1, _, 1, _, 0, _, _, _, _) : drop();
            (Form.PULL, _, 1, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.PULL, _, 1, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            (Form.PROBE, _, 1, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.PROBE, _, 1, 1, _, 1, _, _, _, _, _, _) : probe();
            (Form.PROBE, _, 1, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.PROBE, _, 1, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            (Form.INSTALL, _, 1, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.INSTALL, _, 1, 1, _, 1, _, 1, _, _, _, _) : install();
            (Form.INSTALL, _, 1, 1, _, 1, _, 0, _, _, _, _) : drop();
            (Form.INSTALL, _, 1, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.INSTALL, _, 1, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            (Form.DRAIN, _, 1, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.DRAIN, _, 1, 1, _, 1, _, 1, _, _, _, _) : drain();
            (Form.DRAIN, _, 1, 1, _, 1, _, 0, _, _, _, _) : drop();
            (Form.DRAIN, _, 1, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.DRAIN, _, 1, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            (Form.FLIP, _, 1, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.FLIP, _, 1, 1, _, 1, _, 1, _, _, _, _) : flip();
            (Form.FLIP, _, 1, 1, _, 1, _, 0, _, _, _, _) : drop();
            (Form.FLIP, _, 1, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.FLIP, _, 1, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            (Form.REMEMBER, _, 1, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (Form.REMEMBER, _, 1, 1, _, 1, _, 1, _, _, _, _) : remember();
            (Form.REMEMBER, _, 1, 1, _, 1, _, 0, _, _, _, _) : drop();
            (Form.REMEMBER, _, 1, 1, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (Form.REMEMBER, _, 1, 1, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
        }
    }

    apply { fates.apply(); }
}
