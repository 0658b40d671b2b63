// The larger and the smaller of two numbers, for the v1model.

#pragma once

control Order(in bit<32> one, in bit<32> other, out bit<32> large, out bit<32> small) {
    apply {
        if (one > other) {
            large = one;
            small = other;
        } else {
            large = other;
            small = one;
        }
    }
}
