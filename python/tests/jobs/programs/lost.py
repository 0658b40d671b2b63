"""Pushes alone: no operation waits for the servers, which may be gone."""

import sys
import time

import libra_ps as libra
import numpy as np
from libra_ps.definitions import Rule

how = sys.argv[1]
session = libra.init(mode="async")
client = libra.Client()
client.add_table("a", 1000, 2, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
client.pull("a", [1])
print("working", flush=True)
if session.rank == 0:
    # It has the servers, and is killed.
    time.sleep(120)
ends_at = time.monotonic() + 1
while time.monotonic() < ends_at:
    client.push("a", np.arange(1000), np.ones((1000, 2)))
    client.tick()
    time.sleep(0.01)
print("pushed", flush=True)
if how == "flushes":
    client.flush()
elif how == "raises":
    raise ValueError("an error of the program")
