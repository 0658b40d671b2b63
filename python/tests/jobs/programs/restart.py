"""A job that is killed after a save, and goes on from it when torchrun starts it again."""

import os
import signal
import sys
from pathlib import Path

import libra_ps as libra
import torch

folder = Path(sys.argv[1])
session = libra.init(mode="sync")
rank, is_again = session.rank, os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
model = torch.nn.Sequential(libra.nn.Embedding(20, 2, init=libra.Zero()))
optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)
done = 0
if (folder / "manifest.json").exists():
    done = libra.load(folder, model, optimizer)["steps"]
assert done == (10 if is_again else 0), done
for step in range(done, 20):
    optimizer.zero_grad()
    model(torch.tensor([rank, 5])).sum().backward()
    optimizer.step()
    if step == 9:
        libra.save(folder, model, optimizer, steps=step + 1)
    if step == 14 and rank == 1 and not is_again:
        os.kill(os.getpid(), signal.SIGKILL)
libra.barrier()
assert model.state_dict()["0.weight"][[0, 1, 5, 6], 0].tolist() == [-10, -10, -20, 0]
sys.stdout.write(f"done {rank}\n")
