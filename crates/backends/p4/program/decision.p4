// Outcome of a packet of Libra, by everything that is known of it: the order of rule W6.

#pragma once

#include "headers.p4"

control Decision(inout headers_t hdr, inout metadata_t meta) {
    action drop() { meta.outcome = Outcome.DROPPED; }
    action refuse(bit<16> reason) {
        meta.outcome = Outcome.REFUSED;
        meta.reason = reason;
    }
    action push(ValueAction values) {
        meta.outcome = Outcome.PUSHED;
        meta.sum_action = SumAction.ADD;
        meta.value_action = values;
    }
    action duplicate(ValueAction values) {
        meta.outcome = Outcome.DUPLICATE;
        meta.value_action = values;
    }
    action pull() {
        meta.outcome = Outcome.PULLED;
        meta.value_action = ValueAction.READ;
    }
    action probe() { meta.outcome = Outcome.PULLED; }
    action install() {
        meta.outcome = Outcome.INSTALLED;
        meta.value_action = ValueAction.WRITE;
    }
    action drain() {
        meta.outcome = Outcome.DRAINED;
        meta.sum_action = SumAction.TAKE;
    }
    action flip() { meta.outcome = Outcome.FLIPPED; }
    action remember() { meta.outcome = Outcome.REMEMBERED; }

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
            // Senders without the right to ask.
            (Form.OTHER, _, _, _, _, _, _, _, _, _, _, _) : drop();
            (Form.PUSH, 0, _, _, _, _, _, _, _, _, _, _) : drop();
            (Form.PULL, 0, 0, _, _, _, _, _, _, _, _, _) : drop();
            (Form.PROBE, 0, 0, _, _, _, _, _, _, _, _, _) : drop();
            (Form.INSTALL, _, 0, _, _, _, _, _, _, _, _, _) : drop();
            (Form.DRAIN, _, 0, _, _, _, _, _, _, _, _, _) : drop();
            (Form.FLIP, _, 0, _, _, _, _, _, _, _, _, _) : drop();
            (Form.REMEMBER, _, 0, _, _, _, _, _, _, _, _, _) : drop();
            // Packets for another plan or view than that of the region.
            (_, _, _, 0, _, _, _, _, _, _, _, _) : refuse(UNKNOWN_FLOW);
            (_, _, _, _, 0, 0, _, _, _, _, _, _) : refuse(STALE_VIEW);
            (_, _, _, _, _, 0, _, _, _, _, _, _) : refuse(STALE_PLAN);
            // Packets that the region does not take now.
            (Form.PUSH, _, _, _, _, _, 0 &&& CONDITION_ACTIVE, _, _, _, _, _) : refuse(INACTIVE);
            (Form.PULL, _, _, _, _, _, 0 &&& CONDITION_READABLE, _, _, _, _, _) : refuse(NOT_INSTALLED);
            (_, _, _, _, _, _, _, 0, _, _, _, _) : drop();
            // The others are carried out.
            (Form.PUSH, _, _, _, _, _, CONDITION_READABLE &&& CONDITION_READABLE, _, 1, _, _, FLAG_VALUES &&& FLAG_VALUES) : push(ValueAction.READ);
            (Form.PUSH, _, _, _, _, _, _, _, 1, _, _, _) : push(ValueAction.NONE);
            (Form.PUSH, _, _, _, _, _, _, _, _, 0, 0, _) : refuse(BANK_FULL);
            (Form.PUSH, _, _, _, _, _, CONDITION_READABLE &&& CONDITION_READABLE, _, _, _, _, FLAG_VALUES &&& FLAG_VALUES) : duplicate(ValueAction.READ);
            (Form.PUSH, _, _, _, _, _, _, _, _, _, _, _) : duplicate(ValueAction.NONE);
            (Form.PULL, _, _, _, _, _, _, _, _, _, _, _) : pull();
            (Form.PROBE, _, _, _, _, _, _, _, _, _, _, _) : probe();
            (Form.INSTALL, _, _, _, _, _, _, _, _, _, _, _) : install();
            (Form.DRAIN, _, _, _, _, _, _, _, _, _, _, _) : drain();
            (Form.FLIP, _, _, _, _, _, _, _, _, _, _, _) : flip();
            (Form.REMEMBER, _, _, _, _, _, _, _, _, _, _, _) : remember();
        }
    }

    apply { fates.apply(); }
}
