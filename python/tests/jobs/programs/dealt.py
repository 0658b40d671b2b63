"""Counts how often each sample is trained: a worker pushes 1 for each sample of the batches that it is dealt."""

import argparse
import os
import sys
import time

import libra_ps as libra
import numpy as np
from libra_ps.definitions import Rule

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=4000)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--chunk", type=int, default=50)
parser.add_argument("--pause", type=float, default=0.0, help="seconds a batch")
parser.add_argument("--mode", default="async")
parser.add_argument("--data", default="counts")
parser.add_argument("--leave-after", type=int, default=1 << 30, metavar="BATCHES")
arguments = parser.parse_args()

session = libra.init(mode=arguments.mode, servers=2, timeout=30)
client = libra.Client()
samples = arguments.samples
chunks = libra.data.Chunks(
    samples, batch_size=20, epochs=arguments.epochs, chunk_samples=arguments.chunk, name=arguments.data
)
client.add_table("counts", samples, 1, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
trained = left = 0
for epoch in chunks:
    for batch in epoch:
        client.pull("counts", batch)
        client.push("counts", batch, np.full((len(batch), 1), -1.0))
        client.tick()
        trained += len(batch)
        if trained == 20:
            print("working", flush=True)
        time.sleep(arguments.pause)
        left += 1
        if left == arguments.leave_after:
            libra.shutdown()
            print(f"left after {trained}", flush=True)
            sys.exit()
    counts = client.pull("counts", np.arange(samples))
    # All pushes of the epoch can be read, and maybe some of the next.
    assert counts.min() >= epoch.number + 1, (epoch.number, counts.min())
    print(f"epoch {epoch.number}: {counts.min():.0f} to {counts.max():.0f}, worker {os.getpid()} trained {trained}", flush=True)
