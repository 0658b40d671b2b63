// The program of a switch, to be run again and again on one frame, which BPF_PROG_TEST_RUN does not restore: a push that was
// answered becomes the next push. Its worker must have the address of the switch, so that turning the frame round changes
// nothing.

#include "switch.h"

SEC("xdp")
int libra_measure(struct xdp_md *ctx)
{
    u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
    u8 *hot = data + FRAME_BYTES;
    if (hot + HEADER_BYTES > end) {
        return XDP_ABORTED;
    }
    u32 ip_bytes = end - data - sizeof(struct ethhdr);
    store16(data + sizeof(struct ethhdr) + 2, ip_bytes);
    store16(data + sizeof(struct ethhdr) + sizeof(struct iphdr) + 4, ip_bytes - sizeof(struct iphdr));
    *PLACE_OF(KIND) = KIND_PUSH;
    *PLACE_OF(FLAGS) = FLAG_LAST;
    *PLACE_OF(ENTRIES) = (ip_bytes - sizeof(struct iphdr) - sizeof(struct udphdr) - HEADER_BYTES) / ENTRY_BYTES;
    store32(PLACE_OF(SEQ), load32(PLACE_OF(SEQ)) + 1);
    return handle(ctx, 0);
}

char _license[] SEC("license") = "Apache-2.0";
