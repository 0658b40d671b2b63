// Adds two floats by looking tables up, as `FloatTables` of crates/dataplane does and to the same bits: the paper's section on floating-point
// summation. Logarithms are words with 23 bits behind the point, as floats have, and 127 above what they are: the exponent of a float is the whole
// part of its logarithm where it is.
//
// A value of a word is computed in a few words, in place: hardware combines words of one group alone, which are 16 for all lanes
// of it.

#pragma once

#include "headers.p4"

const bit<32> SIGN = 0x80000000;
const bit<32> MAGNITUDE = 0x7fffffff;
const bit<32> INFINITY = 0x7f800000;
// A logarithm has 8 bits behind the point once it is rounded: what makes cutting it rounding is in `log_m`.
const bit<32> ROUNDED = 0xffff8000;

// The logarithm of a normal number without its sign.
control Logarithm(in bit<32> number, out bit<32> log) {
    bit<16> difference;

    // Of the 12 bits after those of the mantissa.
    action rest(bit<16> log_d) { difference = log_d; }
    table log_d {
        key = { number[11:0] : exact @name("rest"); }
        actions = { rest; }
        const default_action = rest(0);
        const entries = {
#include "generated/table/log_d.p4"
        }
        size = 4096;
    }

    action mantissa(bit<32> log_m, bit<16> minus_log_m_ln2) {
        log = log + log_m;
        difference = difference + minus_log_m_ln2;
    }
    table log_m {
        key = { number[22:12] : exact @name("mantissa"); }
        actions = { mantissa; }
        const default_action = mantissa(0, 0);
        const entries = {
#include "generated/table/log_m.p4"
        }
        size = 2048;
    }

    action term(bit<32> more) { log = log + more; }
    table exp {
        key = { difference : ternary; }
        actions = { term; }
        const default_action = term(0);
        const entries = {
#include "generated/table/exp.p4"
        }
        size = 256;
    }

    action begin() { log = number & INFINITY; }
    action end() { log = log & ROUNDED; }

    apply {
        begin();
        log_d.apply();
        log_m.apply();
        exp.apply();
        end();
    }
}

control Adder(inout bit<32> sum, in bit<32> value) {
    Order() order;
    Logarithm() log_of_large;
    Logarithm() log_of_small;

    bit<32> large;
    bit<32> small;
    bit<32> first;
    bit<32> second;
    bit<1> differ;
    bit<1> is_same;
    bit<1> is_cancelled;

    action split() {
        first = sum & MAGNITUDE;
        second = value & MAGNITUDE;
        is_same = 0;
        is_cancelled = 0;
    }

    action sign_of_sum() { sum = sum & SIGN; }
    action sign_of_value() { sum = value & SIGN; }

    action theta() { second = first |-| second; }

    action change(bit<32> by) { first = first + by; }
    action cancel() { is_cancelled = 1; }
    table mi {
        key = {
            second[30:15] : ternary @name("theta");
            differ : exact;
        }
        actions = { change; cancel; }
        const default_action = change(0);
        const entries = {
#include "generated/table/mi.p4"
        }
        size = 2048;
    }

    action exponent() { second = first & INFINITY; }
    action fraction(bit<32> upper) { second = second + upper; }
    table float {
        key = { first[22:15] : exact @name("part"); }
        actions = { fraction; }
        const default_action = fraction(0);
        const entries = {
#include "generated/table/float.p4"
        }
        size = 256;
    }

    action nothing() { sum = 0; }
    action nothing_of_sign() { }
    action infinite() { sum = sum | INFINITY; }
    action only_large() { sum = sum | large; }
    action of_tables() { sum = sum | second; }
    table outcomes {
        key = {
            large[30:23] : ternary @name("exponent");
            small[30:23] : ternary @name("exponent_of_small");
            is_same : ternary;
            differ : ternary;
            is_cancelled : ternary;
            first[31:23] : ternary @name("whole");
        }
        actions = { nothing; nothing_of_sign; infinite; only_large; of_tables; }
        const default_action = of_tables();
        const entries = {
            // Two zeros: negative if both are. Subnormal numbers are zeros, too.
            (0, _, _, 0, _, _) : nothing_of_sign();
            (0, _, _, _, _, _) : nothing();
            (_, 0, _, _, _, _) : only_large();
            (0xff, _, _, _, _, _) : only_large();
            (_, _, 1, 1, _, _) : nothing();
            (_, _, _, _, 1, _) : nothing();
            // Above the largest number, or below the least normal one.
            (_, _, _, _, _, 0xff) : infinite();
            (_, _, _, _, _, 0x100) : infinite();
            (_, _, _, _, _, 0x100 &&& 0x100) : nothing_of_sign();
            (_, _, _, _, _, 0) : nothing_of_sign();
        }
    }

    apply {
        split();
        if (sum[31:31] != value[31:31]) {
            differ = 1;
        } else {
            differ = 0;
        }
        order.apply(first, second, large, small);
        if (large == first) {
            sign_of_sum();
        } else {
            sign_of_value();
        }
        if (large == small) {
            is_same = 1;
        }
        log_of_large.apply(large, first);
        log_of_small.apply(small, second);
        theta();
        mi.apply();
        exponent();
        float.apply();
        outcomes.apply();
    }
}

#include "generated/table/adders.p4"
