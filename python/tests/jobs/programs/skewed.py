"""Every worker pushes to rows of which few take most updates; the sums must be those of all."""

import sys
import time

import libra_ps as libra
import numpy as np
from libra_ps.definitions import Rule

session = libra.init(mode=sys.argv[1], log=True, timeout=30)
client = libra.Client()
client.add_table("cold first", 500, 3, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
client.add_table("item", int(sys.argv[2]), 4, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
# Wider than a packet: its rows stay on the servers.
client.add_table("wide", 10, 300, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
numbers = np.random.default_rng(5)
expected = np.zeros((2000, 4))
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 60
libra.note(planned=200 * steps)
for step in range(steps):
    keys = np.unique((numbers.random(200) ** 4 * 2000).astype(np.int64))
    gradients = numbers.integers(-8, 9, (len(keys), 4)) / 8.0
    expected[keys] -= gradients
    client.pull("item", keys)
    client.push("item", keys, gradients)
    client.push("cold first", [step % 500], np.ones((1, 3)))
    client.push("wide", [step % 10], np.ones((1, 300)))
    client.tick()
    libra.note(samples=200, loss=float(step))
    if steps != 60:
        # Time for faults.
        time.sleep(0.02)
        if step == 10:
            print("working", flush=True)
client.flush()
client.barrier()
found = client.pull("item", np.arange(2000))
worst = np.abs(found - session.workers * expected).max()
assert worst < 1e-3, worst
assert (client.pull("wide", [3]) == -steps / 10 * session.workers).all()
sys.stdout.write(f"done {session.rank}\n")
