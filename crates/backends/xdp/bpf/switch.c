// The programs that a switch puts onto its interface.

#define SHORTENS 1
#include "switch.h"

SEC("xdp")
int libra_switch(struct xdp_md *ctx) { return handle(ctx); }

char _license[] SEC("license") = "Apache-2.0";
