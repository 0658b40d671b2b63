// Lets everything pass. The other end of a veth pair needs a program, any, to take what a program on this end sends.

#include "bpf.h"

SEC("xdp")
int libra_pass(struct xdp_md *ctx) { return XDP_PASS; }

char _license[] SEC("license") = "Apache-2.0";
