// Tags of packets, as `crates/dataplane/src/authentication.rs`, which says what they are evidence of (rules A1 to A4).
#pragma once

#include "bpf.h"
#include "constants.h"
#include "entries.h"
#include "memory.h"
#include "parts.h"

// Words of 64 bits that are hashed at once, and their bytes: a body is filled up with zeros to a multiple of so many.
#define HASHED_PAIRS 4
#define HASHED_BYTES (8 * HASHED_PAIRS)
// The second hash uses the same key from this word on.
#define TOEPLITZ_WORDS 4
// What lies before the tag in the last of the words of a header.
#define HEADER_END (~0ull >> (64 - 8 * (AT_TAG - 16)))

struct body_hash {
    u64 a, b;
};

// Adds the product of a pair of words to both hashes, each word with one of the key added.
INLINE void nh(struct body_hash *hash, u64 pair, const u32 *key)
{
    u32 first = pair, second = pair >> 32;
    hash->a += (u64)(first + key[0]) * (second + key[1]);
    hash->b += (u64)(first + key[TOEPLITZ_WORDS]) * (second + key[TOEPLITZ_WORDS + 1]);
}

// Compresses the entries of a packet. There are as many as the frame has room for.
INLINE struct body_hash hash_body(struct xdp_md *ctx, u32 entries, const struct body_key *key)
{
    struct body_hash hash = {};
    const u8 *at = body(ctx), *end = end_of(ctx);
    const u32 *words = key->words;
    for (int i = 0; i < ENTRIES_MAX * ENTRY_BYTES / HASHED_BYTES && at + HASHED_BYTES <= end; i++) {
#pragma unroll
        for (int pair = 0; pair < HASHED_PAIRS; pair++) {
            nh(&hash, load_little64(at + 8 * pair), words + 2 * pair);
        }
        at += HASHED_BYTES;
        words += HASHED_BYTES / sizeof(u32);
    }

    // What is left, and zeros. It begins where the loop has ended; as a number the verifier looks at it once.
    u32 bytes = entries * ENTRY_BYTES, whole = bytes / HASHED_BYTES;
    // Known to be in the key as long as no mask is made of the division.
    OPAQUE(whole);
    if (bytes % HASHED_BYTES == 0) {
        return hash;
    }
    // The end of a word is read together with what lies before it, which may be the header.
    const u8 *last = body(ctx) + bytes - 8;
    if (last + 8 > end) {
        return hash;
    }
    u64 rest = load_little64(last) >> 8 >> (56 - 8 * (bytes % 8));
    at = body(ctx) + whole * HASHED_BYTES;
    words = key->words + whole * (HASHED_BYTES / sizeof(u32));
#pragma unroll
    for (int pair = 0; pair < HASHED_PAIRS; pair++) {
        u64 there = rest;
        if (at + 8 <= end) {
            there = load_little64(at);
        } else {
            rest = 0;
        }
        nh(&hash, there, words + 2 * pair);
        at += 8;
    }
    return hash;
}

struct sip_state {
    u64 v0, v1, v2, v3;
};

#define ROTATE(word, by) ((word) << (by) | (word) >> (64 - (by)))
INLINE void sip_round(struct sip_state *s)
{
    s->v0 += s->v1;
    s->v1 = ROTATE(s->v1, 13) ^ s->v0;
    s->v0 = ROTATE(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = ROTATE(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = ROTATE(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = ROTATE(s->v1, 17) ^ s->v2;
    s->v2 = ROTATE(s->v2, 32);
}
#undef ROTATE

INLINE void sip_word(struct sip_state *s, u64 word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

// The key of entries of a worker's job.
INLINE const struct body_key *body_key_of(const struct worker *worker)
{
    u32 place = worker->place;
    return bpf_map_lookup_elem(&body_keys, &place);
}

// The MAC of the packet in a frame, whatever tag it has now: of its header, which is there, and of so many entries (rule A2).
INLINE u64 mac_of(struct xdp_md *ctx, const struct body_key *body_key, const struct tag_key *key, u64 view, u32 entries)
{
    struct body_hash hash = {};
    if (entries) {
        hash = hash_body(ctx, entries & ENTRIES_MAX, body_key);
    }
    // Of the loops nothing must be left in what the verifier knows from here on.
    OPAQUE(hash.a);
    OPAQUE(hash.b);
    struct sip_state s = {
        .v0 = key->words[0] ^ 0x736f6d6570736575,
        .v1 = key->words[1] ^ 0x646f72616e646f6d,
        .v2 = key->words[0] ^ 0x6c7967656e657261,
        .v3 = key->words[1] ^ 0x7465646279746573,
    };
    const u8 *header = body(ctx) - HEADER_BYTES;
    if (header + HEADER_BYTES > end_of(ctx)) {
        return 0;
    }
    // SipHash-2-4 of 48 bytes.
    sip_word(&s, load_little64(header));
    sip_word(&s, load_little64(header + 8));
    sip_word(&s, load_little64(header + 16) & HEADER_END);
    sip_word(&s, view);
    sip_word(&s, hash.a);
    sip_word(&s, hash.b);
    sip_word(&s, 48ull << 56);
    s.v2 ^= 0xff;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sip_round(&s);
    }
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

// The MAC of the answer to the packet that was handed over. The verifier looks at this function by itself, and then takes any number for
// what it returns: nothing of its loops is left in the states of its callers.
__attribute__((noinline)) u64 mac_of_answer(struct xdp_md *ctx, u64 view, u32 entries)
{
    const struct handover *here = handover();
    const struct body_key *body_key = here ? body_key_of(&here->worker) : 0;
    return body_key ? mac_of(ctx, body_key, &here->worker.down, view, entries) : 0;
}
