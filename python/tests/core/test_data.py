"""Samples that are dealt in chunks, in a process alone."""

from __future__ import annotations

import libra_ps as libra
import numpy as np
import pytest
from libra_ps.data import Chunks
from libra_ps.definitions import Rule


def of_epochs(chunks: Chunks) -> list[list[int]]:
    return [[int(sample) for batch in epoch for sample in batch] for epoch in chunks]


@pytest.mark.parametrize("shuffle", [True, False, "chunks"])
@pytest.mark.parametrize(("samples", "batch", "chunk"), [(1000, 32, None), (1000, 32, 100), (7, 10, None), (1, 1, 5)])
def test_an_epoch_has_each_sample_once(
    session: libra.Session, samples: int, batch: int, chunk: int | None, shuffle: bool | str
) -> None:
    chunks = Chunks(samples, batch_size=batch, epochs=3, chunk_samples=chunk, shuffle=shuffle)
    epochs = of_epochs(chunks)
    assert [sorted(epoch) for epoch in epochs] == [list(range(samples))] * 3
    if samples > 100:
        assert (epochs[0] == epochs[1]) == (shuffle is False)
    assert of_epochs(chunks) == []


def test_the_order_follows_from_the_seed() -> None:
    orders = []
    for seed in (5, 5, 6):
        libra.shutdown()
        libra.init(seed=seed)
        orders.append(of_epochs(Chunks(500, batch_size=16, epochs=2)))
    libra.shutdown()
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("saved_at", [1, 5, 12, 13, 30])
def test_training_goes_on_at_a_position(saved_at: int) -> None:
    def train(stop: int | None, state: dict[str, int] | None) -> tuple[list[list[int]], dict[str, int]]:
        libra.shutdown()
        libra.init(seed=3)
        client = libra.Client()
        client.add_table("rows", 100, 1, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
        chunks = Chunks(100, batch_size=8, epochs=3, chunk_samples=20)
        if state is not None:
            chunks.load_state_dict(state)
        batches: list[list[int]] = []
        for epoch in chunks:
            for batch in epoch:
                client.push("rows", batch, np.ones((len(batch), 1)))
                batches.append(batch.tolist())
                if len(batches) == stop:
                    return batches, chunks.state_dict()
        return batches, chunks.state_dict()

    whole, end = train(None, None)
    assert end == {"epoch": 3, "batches": 0}
    before, state = train(saved_at, None)
    after, _ = train(None, state)
    libra.shutdown()
    assert before + after == whole


def test_the_next_epoch_waits_for_all_of_this_one(session: libra.Session) -> None:
    chunks = iter(Chunks(100, batch_size=10, epochs=2))
    next(iter(next(chunks)))
    with pytest.raises(libra.Error, match="epoch 1 is not over"):
        next(chunks)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size = 0 must be"),
        ({"samples": 0}, "samples = 0 must be"),
        ({"epochs": 1.5}, "epochs = 1.5 must be"),
        ({"shuffle": "all"}, "shuffle = 'all' must be"),
        ({"chunk_samples": 0}, "chunk_samples = 0 must be"),
        ({"samples": 1 << 40, "chunk_samples": 1}, "make them larger"),
        ({"name": "a\nb"}, "printable"),
    ],
)
def test_options_that_cannot_be_are_refused(session: libra.Session, options: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Chunks(**{"samples": 100, "batch_size": 10, **options})


def test_a_session_has_one_set_of_samples(session: libra.Session) -> None:
    Chunks(100, batch_size=10)
    with pytest.raises(libra.Error, match="are defined: 100 samples"):
        Chunks(100, batch_size=10)


def test_a_position_that_is_none_is_refused(session: libra.Session) -> None:
    chunks = Chunks(100, batch_size=10, epochs=2)
    with pytest.raises(ValueError, match="no position in 2 epochs of 10 batches"):
        chunks.load_state_dict({"epoch": 1, "batches": 10})
