"""Look-ups and updates on the threads of torch."""

from __future__ import annotations

from collections.abc import Iterator

import libra_ps as libra
import pytest
import torch
from libra_ps import nn, optim
from torch import Tensor

WIDTH, BATCH, STEPS = 16, 512, 4


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def train(threads: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Trains four tables, of which one has two features; returns outputs of each step, and all rows."""
    torch.set_num_threads(threads)
    libra.shutdown()
    libra.init(mode="sync", seed=5)
    features = {"a": ["a"], "b": ["b", "c"], "d": ["d"], "e": ["e"]}
    configs = [nn.TableConfig(name, 1000, WIDTH, of_table, mode="sum") for name, of_table in features.items()]
    model = nn.EmbeddingBagCollection(configs)
    optimizer = optim.wrap(torch.optim.Adam(model.parameters(), lr=0.1), model)
    generator = torch.Generator().manual_seed(7)
    outputs = []
    for _ in range(STEPS):
        ids = {name: torch.randint(1000, (BATCH, 5), generator=generator) for name in "eabcd"}
        pooled = torch.cat(list(model(ids).values()), 1)
        outputs.append(pooled.detach().clone())
        optimizer.zero_grad()
        (pooled * torch.linspace(-1, 1, pooled.shape[1])).square().sum().backward()
        optimizer.step()
    rows = {name: module.read_rows() for name, module in model.tables.items()}  # type: ignore[operator]
    return outputs, rows


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    outputs, rows = train(1)
    for threads in (2, 4):
        again, rows_again = train(threads)
        assert all(torch.equal(one, other) for one, other in zip(outputs, again))
        assert all(torch.equal(rows[name], rows_again[name]) for name in rows)


def test_a_bad_id_on_another_thread_is_an_index_error() -> None:
    torch.set_num_threads(2)
    model = nn.EmbeddingBagCollection(nn.TableConfig(name, 1000, WIDTH) for name in "abcd")
    ids = {name: torch.randint(1000, (BATCH, 5)) for name in "abcd"}
    ids["d"][-1, -1] = 1000
    ids["c"][-1, -1] = -1
    with pytest.raises(IndexError, match='table "c"'):
        model(ids)
    model({**ids, "c": ids["a"], "d": ids["a"]})


@pytest.mark.parametrize("columns", [slice(0, WIDTH), slice(3, 3 + WIDTH)])
def test_gradients_may_be_columns_of_others(columns: slice) -> None:
    ids = torch.tensor([3, 1, 3, 0])
    ours = nn.Embedding(10, WIDTH)
    gradient = torch.randn(4, 2 * WIDTH)[:, columns]
    assert not gradient.is_contiguous()
    plain = ours.to_torch()
    plain(ids).backward(gradient)
    optimizer = optim.wrap(torch.optim.SGD(ours.parameters(), lr=1.0), ours)
    ours(ids).backward(gradient)
    optimizer.step()
    assert plain.weight.grad is not None
    assert torch.equal(ours.read_rows(), plain.weight.detach() - plain.weight.grad)


def test_gradients_may_be_one_row_for_all() -> None:
    ids = torch.tensor([3, 1, 3, 0])
    ours = nn.Embedding(10, WIDTH)
    optimizer = optim.wrap(torch.optim.SGD(ours.parameters(), lr=1.0), ours)
    before, row = ours.read_rows(), torch.randn(WIDTH)
    ours(ids).backward(row.expand(4, WIDTH))
    optimizer.step()
    counts = torch.bincount(ids, minlength=10).float()
    assert torch.allclose(ours.read_rows(), before - counts[:, None] * row)
