// Sizes and codes. Written by `libra p4 generate`: do not edit.

#pragma once

#define LANES 16
#define CELL_BITS 11
#define CELLS 2048
#define FLOW_BITS 6
#define FLOWS 64
#define WINDOW_BITS 10
#define WINDOW 1024
#define ACKED_WORD_BITS 12
#define ACKED_WORDS 4096
#define REGIONS 64
#define BOUND_BITS 19

const bit<8> MAGIC = 0x4c;
const bit<8> VERSION = 0x03;
const bit<8> KIND_PUSH = 0x01;
const bit<8> KIND_PULL = 0x02;
const bit<8> KIND_INSTALL = 0x03;
const bit<8> KIND_DRAIN = 0x04;
const bit<8> KIND_ACK = 0x05;
const bit<8> KIND_NACK = 0x06;
const bit<8> KIND_FLIP = 0x08;
const bit<8> FLAG_VALUES = 0x02;
const bit<8> FLAG_LAST = 0x04;
const bit<8> FLAGS_UNKNOWN = 0xf8;
const bit<8> CONDITION_ACTIVE = 0x01;
const bit<8> CONDITION_READABLE = 0x02;

const bit<16> BANK_FULL = 1;
const bit<16> STALE_PLAN = 2;
const bit<16> NOT_INSTALLED = 3;
const bit<16> UNKNOWN_FLOW = 4;
const bit<16> INACTIVE = 5;
const bit<16> STALE_VIEW = 6;
const bit<16> THROTTLED = 7;

const bit<16> UDP_BYTES_BARE = 38;
const bit<16> IP_BYTES_BARE = 58;
const bit<16> UDP_BYTES_FULL = 134;
const bit<16> IP_BYTES_FULL = 154;

// The upper bits of a value within bounds that is less than zero.
const bit<13> VALUE_NEGATIVE = 0x1fff;
