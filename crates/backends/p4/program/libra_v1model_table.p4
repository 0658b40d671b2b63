// Libra with sums of floats, which are added by tables, for bmv2. See docs/operating/p4.md.

#define SUMS_BY_TABLE

#include "libra_v1model.p4"
