#!/usr/bin/env python3
"""Tags of packets in another language: checks those of the vectors that have keys.

    python3 conformance/auth_model.py conformance/*auth-*.txt

conformance/README.md describes the format and the tags. Which datagrams are dropped for their tag is
computed, too, and compared with the answers and the counters of the file.
"""
import struct
import sys
from pathlib import Path

HEADER = struct.Struct(">BBBBHHHHBBHHIQ")
FIELDS = "magic kind flags entries job worker plan view region version round durable seq tag".split()
PUSH, PULL, KINDS = 1, 2, range(1, 8)
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def nh(key, body, shift):
    """NH of a body: products of pairs of words, each with a word of the key added."""
    body += bytes(-len(body) % 32)
    words = struct.unpack(f"<{len(body) // 4}I", body)
    sums = [(word + key[shift + at]) & M32 for at, word in enumerate(words)]
    return sum(a * b for a, b in zip(sums[::2], sums[1::2])) & M64


def siphash(key, message):
    """SipHash-2-4 of a multiple of eight bytes."""
    k0, k1 = struct.unpack("<2Q", key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count):
        nonlocal v0, v1, v2, v3
        left = lambda word, bits: (word << bits | word >> 64 - bits) & M64
        for _ in range(count):
            v0, v2 = (v0 + v1) & M64, (v2 + v3) & M64
            v1, v3 = left(v1, 13) ^ v0, left(v3, 16) ^ v2
            v0 = left(v0, 32)
            v0, v2 = (v0 + v3) & M64, (v2 + v1) & M64
            v3, v1 = left(v3, 21) ^ v0, left(v1, 17) ^ v2
            v2 = left(v2, 32)

    for (word,) in struct.iter_unpack("<Q", message + struct.pack("<Q", len(message) << 56 & M64)):
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xFF
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3


def tag(key, direction, view, packet):
    """The tag that a packet must have, in a region of this view."""
    if "cookie" in key:
        return int(key["cookie"], 16)
    body_key = struct.unpack("<388I", bytes.fromhex(key["body"]))
    hashes = (nh(body_key, packet[30:], shift) for shift in (0, 4))
    message = packet[:22] + bytes(2) + struct.pack("<3Q", view, *hashes)
    return siphash(bytes.fromhex(key[direction]), message)


def parse(packet):
    """The header, or None of what is no packet (rule W2)."""
    header = dict(zip(FIELDS, HEADER.unpack(packet[:30]))) if len(packet) >= 30 else {"magic": 0}
    fits = header["magic"] == 0x4C and header["version"] == 3 and len(packet) == 30 + 6 * header["entries"]
    return header if fits and header["kind"] in KINDS and header["flags"] < 8 else None


def fault(sender, key, regions, packet):
    """`forged`, `stale`, or None if the tag is no reason to drop it (rule A3)."""
    header = parse(packet)
    if not key or not header or header["kind"] not in (PUSH, PULL):
        return None
    if sender != f"w{header['job']}.{header['worker']}":
        return None
    region = regions.get(f"r{header['job']}.{header['region']}")
    if "cookie" not in key:
        if not region or (header["plan"], header["view"]) != (region["plan"], region["view"] & 0xFFFF):
            return "stale"
    view = region["view"] if region else 0
    return None if header["tag"] == tag(key, "up", view, packet) else "forged"


def check(path):
    """Checks a file; returns how many tags."""
    keys, regions, counted, checked, times = {}, {}, {"forged": 0, "stale": 0}, 0, 1
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        first, *words = line.split() or [""]
        here = f"{path}:{number}"
        if first == "key":
            pairs = words[2:] if words[1] == "mac" else words[1:]
            keys[words[0]] = dict(zip(pairs[::2], pairs[1::2]))
        elif first == "region":
            regions[words[0]] = {name: int(words[words.index(name) + 1]) for name in ("plan", "view")}
        elif first == "close":
            del regions[words[0]]
        elif first == "times":
            times = int(words[0])
        elif first == "<":
            sender, *digits = words
            datagram = b"" if digits == ["empty"] else bytes.fromhex("".join(digits))
        elif first == ">" and sender.startswith("w"):
            key = keys.get(sender)
            why = fault(sender, key, regions, datagram)
            if why:
                counted[why] += times
                assert words == ["none"], f"{here}: the datagram is {why}, and answered"
            checked += key is not None
            if words != ["none"]:
                answer = bytes.fromhex("".join(words))
                header = parse(answer)
                region = regions.get(f"r{header['job']}.{header['region']}", {})
                right = tag(key, "down", region.get("view"), answer) if key else 0
                assert header["tag"] == right, f"{here}: the tag should be {right:016x}"
                checked += key is not None
            times = 1
        elif first == "counters":
            told = dict(zip(words[1::2], map(int, words[2::2])))
            for why, count in counted.items():
                assert told.get(why, 0) == count, f"{here}: {count} are {why}"
    return checked


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            print(f"{name}: {check(name)} tags")
    except AssertionError as error:
        sys.exit(str(error))
