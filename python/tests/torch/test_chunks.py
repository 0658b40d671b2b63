"""Samples that are dealt in chunks, through the DataLoader of torch."""

from __future__ import annotations

import libra_ps as libra
import pytest
import torch
from libra_ps.data import Chunks
from torch.utils.data import TensorDataset


@pytest.mark.parametrize("processes", [0, 2])
def test_a_loader_hands_on_the_batches_of_an_epoch(session: libra.Session, processes: int) -> None:
    samples = torch.arange(1000) * 3
    chunks = Chunks(len(samples), batch_size=16, epochs=2, chunk_samples=50)
    for epoch in chunks:
        loaded = [batch for [batch] in epoch.loader(TensorDataset(samples), num_workers=processes)]
        assert epoch.is_over
        assert len(loaded) == chunks.batches and max(len(batch) for batch in loaded) == 16
        assert torch.cat(loaded).sort().values.equal(samples)


def test_a_chunk_is_trained_when_its_gradients_were_pushed(session: libra.Session) -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(100, 2))
    optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)
    chunks = Chunks(100, batch_size=10, chunk_samples=10)
    positions = []
    for epoch in chunks:
        for number, batch in enumerate(epoch):
            model(torch.from_numpy(batch)).sum().backward()
            # Gradients of two batches are one step.
            if number % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
            state = chunks.state_dict()
            positions.append(10 * state["epoch"] + state["batches"])
    assert positions[1::2] == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("option", ["batch_size", "shuffle", "sampler"])
def test_options_of_the_order_are_refused(session: libra.Session, option: str) -> None:
    epoch = next(iter(Chunks(10, batch_size=10)))
    with pytest.raises(ValueError, match=f"{option}= is not for this loader"):
        next(epoch.loader(TensorDataset(torch.arange(10)), **{option: 1}))
