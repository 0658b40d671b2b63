// The header of a push between its passes. Written by `libra p4 generate`: do not edit.

#pragma once

// In which turn sums were read, by which port the push came, the sum of each lane, and what is added to it.
header again_h {
    bit<32> turn;
    bit<16> came_by;
    bit<32> sum0;
    bit<32> sum1;
    bit<32> sum2;
    bit<32> sum3;
    bit<32> value0;
    bit<32> value1;
    bit<32> value2;
    bit<32> value3;
}
