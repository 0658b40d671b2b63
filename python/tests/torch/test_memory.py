"""Memory over many steps."""

from __future__ import annotations

import os
from pathlib import Path

import libra_ps as libra
import torch


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_memory_does_not_grow_with_steps() -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(5000, 8), torch.nn.Linear(8, 1))
    optimizer = libra.optim.wrap(torch.optim.Adam(model.parameters()), model)

    def steps(count: int) -> None:
        for step in range(count):
            loss = model(torch.randint(5000, (256,))).square().mean()
            if step % 3:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    model(torch.arange(5000)).sum().backward()
    optimizer.step()
    steps(1000)
    before = resident_bytes()
    steps(4000)
    assert resident_bytes() - before < 5 << 20
