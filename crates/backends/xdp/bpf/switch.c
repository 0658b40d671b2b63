// The program that a switch puts onto its interface.

#include "switch.h"

SEC("xdp")
int libra_switch(struct xdp_md *ctx) { return handle(ctx, 1); }

char _license[] SEC("license") = "Apache-2.0";
