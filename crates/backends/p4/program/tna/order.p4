// The larger and the smaller of two numbers, for Tofino, which does not branch on that but has instructions for it.

#pragma once

control Order(in bit<32> one, in bit<32> other, out bit<32> large, out bit<32> small) {
    action sort() {
        large = max(one, other);
        small = min(one, other);
    }

    apply { sort(); }
}
