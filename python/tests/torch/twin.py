"""Models with tables, and their twins in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libra_ps as libra
import torch


class Model(torch.nn.Module):
    """Two tables, one of them looked up twice, and a dense layer."""

    def __init__(self, embedding: Any, bag: Any, rows: int = 50) -> None:
        super().__init__()
        self.a = embedding(rows, 4)
        self.b = bag(rows, 3, mode="sum")
        self.dense = torch.nn.Linear(11, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.a(x), self.b(y), self.a(y[:, 0])], 1)).square()


def twins(
    make: Callable[[Any], torch.optim.Optimizer] = lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    rows: int = 50,
) -> tuple[tuple[Model, torch.optim.Optimizer], tuple[Model, torch.optim.Optimizer]]:
    """Returns a model with tables and a dense one of the same values, each with its optimizer."""
    torch.manual_seed(3)
    model = Model(libra.nn.Embedding, libra.nn.EmbeddingBag, rows)
    dense = libra.to_torch(model)
    assert isinstance(dense, Model)
    return (model, libra.optim.wrap(make(model.parameters()), model)), (dense, make(dense.parameters()))


def batch(size: int = 16, rows: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(rows, (size,)), torch.randint(rows, (size, 3))


def difference(model: torch.nn.Module, dense: torch.nn.Module) -> float:
    """Returns the largest difference of a value of the models, relative to the largest value of its tensor."""
    libra.flush()
    mine, theirs = model.state_dict(), dense.state_dict()
    assert mine.keys() == theirs.keys()
    return max(float((mine[key] - theirs[key]).abs().max() / theirs[key].abs().max()) for key in mine)


def one(rows: int = 10, width: int = 2, **options: Any) -> tuple[Any, torch.optim.Optimizer]:
    """A table with SGD of the rate 1, whose rows begin at 0."""
    model = torch.nn.Sequential(libra.nn.Embedding(rows, width, init=libra.Zero(), **options))
    return model, libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)


def rows_of(model: Any) -> torch.Tensor:
    libra.flush()
    return model[0].read_rows()  # type: ignore[no-any-return]
