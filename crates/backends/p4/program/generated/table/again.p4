// The header of a push between its passes. Written by `libra p4 generate`: do not edit.

#pragma once

// When the push has passed for the last time, by which port it came, and how often it has passed: after an odd number of times it has read
// sums. Of each lane the turn in which its sum was read, the sum, and what is added to it.
header again_h {
    bit<32> clock;
    bit<16> came_by;
    bit<16> passes;
    bit<32> turn0;
    bit<32> turn1;
    bit<32> sum0;
    bit<32> sum1;
    bit<32> value0;
    bit<32> value1;
}

// Of each lane a field of its own, as hardware writes all of them at once: 1 if it is its turn.
#define TURNS bit<8> is_turn0; bit<8> is_turn1;
#define ALL_TURNS(meta) (meta.is_turn0 == 1 && meta.is_turn1 == 1)
#define NO_TURNS(meta) meta.is_turn0 = 0; meta.is_turn1 = 0;
