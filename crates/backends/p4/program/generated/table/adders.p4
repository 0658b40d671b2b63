// The adders of all lanes. Written by `libra p4 generate`: do not edit.

#pragma once

control Adders(inout again_h again) {
    Adder() adder0;
    Adder() adder1;

    apply {
        adder0.apply(again.sum0, again.value0);
        adder1.apply(again.sum1, again.value1);
    }
}
