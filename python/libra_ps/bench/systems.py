"""Models and batches of the benchmarks, in torch and on Libra."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import nn as libra_nn
from .. import optim, session
from .measure import System

#: Users and items of MovieLens 1M.
USERS, ITEMS = 6040, 3706
BATCHES = 64
FLOOR = "floor"

#: Inputs of the model, and the target.
Batch = tuple[tuple[Any, ...], Tensor]
MakeEmbedding = Callable[[int, int], nn.Module]


@contextmanager
def sessions() -> Iterator[Callable[[str], session.Session]]:
    """Gives a function that starts a session of a mode beside the others, so that modes run in turns in one process."""
    before, started = session._current, []

    def start(mode: str) -> session.Session:
        session._current = None
        started.append(session.init(mode=mode))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.shutdown()
        session._current = before


class Zipf:
    """Ids whose ranks are scattered, by Zipf's law."""

    def __init__(self, ids: int, exponent: float, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        weights = np.arange(1, ids + 1, dtype=np.float64) ** -exponent
        self._bounds = np.cumsum(weights / weights.sum())
        self._ids = self._random.permutation(ids)

    def draw(self, count: int) -> Tensor:
        ranks = np.searchsorted(self._bounds, self._random.random(count))
        return torch.from_numpy(self._ids[np.minimum(ranks, len(self._ids) - 1)])


class Constant(nn.Module):
    """In the place of a table: a tensor that takes a gradient, so that the dense layers compute the same."""

    def __init__(self, *size: int) -> None:
        super().__init__()
        self.rows = torch.randn(size, requires_grad=True)

    def forward(self, *_: Tensor) -> Tensor:
        self.rows.grad = None
        return self.rows


class NeuMF(nn.Module):
    """Matrix factorisation of 8 factors beside a perceptron of 32, 16 and 8, as in examples/python/neumf.py."""

    def __init__(self, embedding: MakeEmbedding) -> None:
        super().__init__()
        self.user_gmf, self.item_gmf = embedding(USERS, 8), embedding(ITEMS, 8)
        self.user_mlp, self.item_mlp = embedding(USERS, 16), embedding(ITEMS, 16)
        layers = [nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU()]
        self.mlp = nn.Sequential(*layers)
        self.last = nn.Linear(16, 1)
        for table in (self.user_gmf, self.item_gmf, self.user_mlp, self.item_mlp):
            if not isinstance(table, Constant):
                nn.init.normal_(table.weight, std=0.01)  # type: ignore[arg-type]

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], 1))
        score: Tensor = self.last(torch.cat([gmf, mlp], 1))
        return score.squeeze(1)


class Product(nn.Module):
    """The dot product of the rows of two tables."""

    def __init__(self, embedding: MakeEmbedding, rows: int, width: int) -> None:
        super().__init__()
        self.user, self.item = embedding(rows, width), embedding(rows, width)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        products: Tensor = self.user(user) * self.item(item)
        return products.sum(1)


class Bags(nn.Module):
    """A linear layer over the bags of all features."""

    def __init__(self, bags: list[nn.Module] | libra_nn.EmbeddingBagCollection, features: int, width: int) -> None:
        super().__init__()
        self.collection = bags if isinstance(bags, libra_nn.EmbeddingBagCollection) else None
        self.bags = nn.ModuleList(bags if isinstance(bags, list) else [])
        self.names = [f"feature{index}" for index in range(features)]
        self.last = nn.Linear(features * width, 1)

    def forward(self, *features: Tensor) -> Tensor:
        if self.collection is not None:
            pooled = list(self.collection(dict(zip(self.names, features))).values())
        else:
            pooled = [bag(ids) for bag, ids in zip(self.bags, features)]
        score: Tensor = self.last(torch.cat(pooled, 1))
        return score.squeeze(1)


def neumf_batches(size: int, seed: int = 1) -> list[Batch]:
    """Draws users and items like those of MovieLens 1M with four negatives: their uneven share, and one of five items."""
    users, items, uniform = Zipf(USERS, 0.5, seed), Zipf(ITEMS, 0.5, seed + 1), Zipf(ITEMS, 0.0, seed + 2)
    batches: list[Batch] = []
    for _ in range(BATCHES):
        seen = torch.rand(size) < 0.2
        batches.append(((users.draw(size), torch.where(seen, items.draw(size), uniform.draw(size))), seen.float()))
    return batches


def zipf_batches(features: int, rows: int, shape: tuple[int, ...], count: int) -> list[Batch]:
    """Draws ids of Zipf's law with exponent 1.05."""
    draws = [Zipf(rows, 1.05, seed) for seed in range(features)]
    size = int(np.prod(shape))
    return [
        (tuple(draw.draw(size).reshape(shape) for draw in draws), torch.rand(shape[0]).round()) for _ in range(count)
    ]


def train(
    name: str,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    batches: Iterable[Batch],
    finish: Callable[[], None] = lambda: None,
) -> System:
    """Returns the system that trains a model."""
    loss_of, source = nn.BCEWithLogitsLoss(), itertools.cycle(batches)

    def step() -> None:
        inputs, target = next(source)
        loss = loss_of(model(*inputs), target)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    return System(name, step, finish)


def sparse_adam(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Returns SparseAdam for the tables of a model of torch, and Adam for the rest."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    of_tables = {id(table) for table in tables}
    dense = [parameter for parameter in model.parameters() if id(parameter) not in of_tables]
    of_dense = [torch.optim.Adam(dense, lr=1e-3)] if dense else []
    return [torch.optim.SparseAdam(tables, lr=1e-3), *of_dense]


def dense_adam(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Returns Adam for all parameters, of which there may be none."""
    parameters = list(model.parameters())
    return [torch.optim.Adam(parameters, lr=1e-3)] if parameters else []


def sparse_embedding(rows: int, width: int) -> nn.Module:
    return nn.Embedding(rows, width, sparse=True)


def libra_embedding(rows: int, width: int) -> nn.Module:
    return libra_nn.Embedding(rows, width)


def on_libra(
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    of: session.Session,
) -> System:
    """Returns the system that trains a model on a session."""
    return train(name, model, [optim.wrap(optimizer, model)], batches, of.flush)


def libra_adam(name: str, make: Callable[[MakeEmbedding], nn.Module], batches: list[Batch], of: session.Session) -> System:
    """Returns the system of a model with Adam on a session."""
    model = make(libra_embedding)
    return on_libra(name, model, torch.optim.Adam(model.parameters(), lr=1e-3), batches, of)
