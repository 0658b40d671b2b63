// Libra with sums of floats, which are added by tables, for Tofino. See docs/operating/p4.md.

#define SUMS_BY_TABLE

#include "libra_tna.p4"
