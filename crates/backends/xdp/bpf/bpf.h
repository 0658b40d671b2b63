// Common parts of programs for the kernel: types, helpers of the kernel, byte order, maps.
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

#define SEC(name) __attribute__((section(name), used))
// Functions must be inlined: under a spin lock the verifier allows no calls that it would check by themselves.
#define INLINE static inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

// Makes the compiler forget how it came to a value: else it computes it again wherever it is used, or keeps what is known of it in
// places of its own.
#define OPAQUE(variable) asm volatile("" : "+r"(variable))

// Fields of the definition of a map, which the loader reads from the BTF.
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, type_name) type_name *name

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const bpf_tail_call)(void *ctx, void *programs, u32 index) = (void *)BPF_FUNC_tail_call;
static long (*const bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)BPF_FUNC_spin_lock;
static long (*const bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)BPF_FUNC_spin_unlock;
static long (*const bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_tail;
static long (*const bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)BPF_FUNC_ringbuf_output;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BIG16(x) ((u16)__builtin_bswap16(x))
#define BIG32(x) ((u32)__builtin_bswap32(x))
#define BIG64(x) ((u64)__builtin_bswap64(x))
#define LITTLE64(x) ((u64)(x))
#else
#define BIG16(x) ((u16)(x))
#define BIG32(x) ((u32)(x))
#define BIG64(x) ((u64)(x))
#define LITTLE64(x) ((u64)__builtin_bswap64(x))
#endif

// Numbers in packets lie at any even address. As members of a packed structure the compiler would read them byte by byte.
INLINE u16 load16(const void *at) { return BIG16(*(const u16 *)at); }
INLINE u32 load32(const void *at) { return BIG32(*(const u32 *)at); }
INLINE u64 load64(const void *at) { return BIG64(*(const u64 *)at); }
// Tags are over words that are not numbers of the protocol: these have the bytes in the other order.
INLINE u64 load_little64(const void *at) { return LITTLE64(*(const u64 *)at); }
INLINE void store16(void *at, u16 value) { *(u16 *)at = BIG16(value); }
INLINE void store32(void *at, u32 value) { *(u32 *)at = BIG32(value); }
INLINE void store64(void *at, u64 value) { *(u64 *)at = BIG64(value); }
