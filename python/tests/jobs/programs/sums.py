"""Every worker pushes ones; the sums must be those of all."""

import sys

import libra_ps as libra
import numpy as np
from libra_ps.definitions import Rule

mode, dies = sys.argv[1], "dies" in sys.argv[2:]
session = libra.init(log=True, mode=mode, servers=2, timeout=float(sys.argv[-1]) if sys.argv[-1].isdigit() else 30)
client = libra.Client()
width = 3 if "other" in sys.argv[2:] and session.rank == 1 else 2
client.add_table("a", 1000, width, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
after = 4 if "admits" in sys.argv[2:] and session.rank == 1 else 3
client.add_table("rare", 100, 1, Rule("sgd", {"lr": 1.0}), init=libra.Zero(), admission=libra.Admission(after))
client.add_table("open", None, 1, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
keys = np.arange(0, 1000, 7)
for step in range(30):
    client.pull("a", keys)
    client.push("a", keys, np.ones((len(keys), 2)))
    client.push("open", [1 << 40, step], [[1.0], [1.0]])
    client.push("rare", [7], [[1.0]])
    client.tick()
    if dies and session.rank == 1 and step == 10:
        print("dying", flush=True)
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)
client.flush()
if not dies:
    client.barrier()
    assert (client.pull("a", keys) == -30.0 * session.workers).all(), client.pull("a", keys)
    assert client.pull("open", [1 << 40]).item() == -30.0 * session.workers
    # Its first two gradients are dropped.
    assert client.pull("rare", [7, 8]).tolist() == [[2.0 - 30.0 * session.workers], [0.0]]
    assert client.pull("open", [3, 31]).tolist() == [[-1.0 * session.workers], [0.0]]
# One write: the output of all workers is one stream.
sys.stdout.write(f"done {session.rank}\n")
