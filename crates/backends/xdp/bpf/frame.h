// Ethernet, IPv4 and UDP: which frames are hot packets for this switch, and how an answer goes back.
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include "bpf.h"
#include "constants.h"

// Offset of the hot packet in a frame. Packets with IP options go another way.
#define FRAME_BYTES (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))

struct headers {
    struct ethhdr ethernet;
    struct iphdr ip;
    struct udphdr udp;
} __attribute__((packed, aligned(2)));

// Address of the switch, as on the wire. The loader sets them.
const volatile u32 switch_address = 0;
const volatile u16 switch_port = 0;

// 1 if this is a whole UDP datagram, plain and not fragmented, for the address of the switch. Everything else is for the
// stack, which also puts fragments together, and hands what is for the switch to its socket.
INLINE int is_for_us(const struct headers *headers, u64 frame_bytes)
{
    const u8 *at = (const u8 *)headers;
    const u16 fragment = 0x3fff;
    u16 ip_bytes = load16(at + sizeof(struct ethhdr) + 2);
    u32 destination = *(const u32 *)(at + sizeof(struct ethhdr) + 16);
    return load16(at + 2 * ETH_ALEN) == ETH_P_IP && at[sizeof(struct ethhdr)] == 0x45 &&
           headers->ip.protocol == IPPROTO_UDP && !(load16(at + sizeof(struct ethhdr) + 6) & fragment) &&
           ip_bytes == frame_bytes - sizeof(struct ethhdr) &&
           load16(at + sizeof(struct ethhdr) + sizeof(struct iphdr) + 4) == ip_bytes - sizeof(struct iphdr) &&
           *(const u16 *)(at + sizeof(struct ethhdr) + sizeof(struct iphdr) + 2) == switch_port &&
           destination == switch_address;
}

// The checksum of a datagram without entries, whose own place for it is zero. Its receivers merge only datagrams that have one (GRO), and
// would take each acknowledgement by itself.
INLINE u16 bare_checksum(const u8 *ip)
{
    const u32 bytes = sizeof(struct iphdr) + sizeof(struct udphdr) + HEADER_BYTES;
    // Beside what lies behind the first fields of IP the sum has the protocol, and the length once more.
    u64 sum = BIG16(IPPROTO_UDP) + *(const u16 *)(ip + sizeof(struct iphdr) + 4);
    for (u32 at = 12; at + 4 <= bytes; at += 4) {
        sum += *(const u32 *)(ip + at);
    }
    sum += bytes % 4 ? *(const u16 *)(ip + bytes - 2) : 0;
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    // Zero means that there is none.
    return sum == 0xffff ? 0xffff : ~sum;
}

// Turns the frame round, with a datagram of so many bytes in it.
INLINE void turn_round(struct headers *headers, u32 payload_bytes)
{
    const u16 hops = 64;
    u16 *ethernet = (u16 *)headers;
    for (int i = 0; i < 3; i++) {
        u16 destination = ethernet[i];
        ethernet[i] = ethernet[i + 3];
        ethernet[i + 3] = destination;
    }

    u16 *ip = ethernet + sizeof(struct ethhdr) / 2;
    u16 udp_bytes = sizeof(struct udphdr) + payload_bytes;
    ip[1] = BIG16(sizeof(struct iphdr) + udp_bytes);
    // Not to be fragmented, as what came was not.
    ip[2] = 0;
    ip[3] = BIG16(0x4000);
    ip[4] = BIG16(hops << 8 | IPPROTO_UDP);
    for (int i = 6; i < 8; i++) {
        u16 source = ip[i];
        ip[i] = ip[i + 2];
        ip[i + 2] = source;
    }
    // The sum is the same in any order of bytes, so none is swapped.
    u32 sum = 0;
    for (int i = 0; i < 10; i++) {
        sum += i == 5 ? 0 : ip[i];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    ip[5] = ~sum;

    u16 *udp = ip + sizeof(struct iphdr) / 2;
    u16 source = udp[0];
    udp[0] = udp[1];
    udp[1] = source;
    udp[2] = BIG16(udp_bytes);
    // With entries there is none: IPv4 allows that, and a sum over them would cost as much as adding them.
    udp[3] = 0;
    if (payload_bytes == HEADER_BYTES) {
        udp[3] = bare_checksum((const u8 *)ip);
    }
}
