// The program of a switch, to be run again and again on one frame, which BPF_PROG_TEST_RUN does not restore: a push that was
// answered becomes the next push. Its worker must have the address of the switch, so that turning the frame round changes
// nothing.

#define SHORTENS 0
#include "switch.h"

// Makes the frame the next push, with the tag of its worker in view 1. By itself for the verifier, as `mac_of_answer`.
__attribute__((noinline)) int restore(struct xdp_md *ctx)
{
    u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
    u8 *hot = data + FRAME_BYTES;
    if (hot + HEADER_BYTES > end) {
        return 0;
    }
    u32 ip_bytes = end - data - sizeof(struct ethhdr);
    u32 entries = (ip_bytes - sizeof(struct iphdr) - sizeof(struct udphdr) - HEADER_BYTES) / ENTRY_BYTES;
    store16(data + sizeof(struct ethhdr) + 2, ip_bytes);
    store16(data + sizeof(struct ethhdr) + sizeof(struct iphdr) + 4, ip_bytes - sizeof(struct iphdr));
    *PLACE_OF(KIND) = KIND_PUSH;
    *PLACE_OF(FLAGS) = FLAG_LAST;
    *PLACE_OF(ENTRIES) = entries;
    store32(PLACE_OF(SEQ), load32(PLACE_OF(SEQ)) + 1);

    struct worker *worker = sender_of(data);
    const struct body_key *body_key = worker ? body_key_of(worker) : 0;
    if (!body_key || worker->tags != TAGS_MAC) {
        return 0;
    }
    u64 tag = mac_of(ctx, body_key, &worker->up, 1, entries);
    hot = body(ctx) - HEADER_BYTES;
    if (hot + HEADER_BYTES > end_of(ctx)) {
        return 0;
    }
    store64(PLACE_OF(TAG), tag);
    return 0;
}

SEC("xdp")
int libra_measure(struct xdp_md *ctx)
{
    restore(ctx);
    return handle(ctx);
}

// What is not of the switch in that.
SEC("xdp")
int libra_restore(struct xdp_md *ctx)
{
    restore(ctx);
    return XDP_DROP;
}

char _license[] SEC("license") = "Apache-2.0";
