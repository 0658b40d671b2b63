"""Outputs and gradients of 2,000 random look-ups, as those of torch or of its documentation."""

from __future__ import annotations

import random

import libra_ps as libra
import pytest
import torch
from torch import Tensor

CASES = 250


class Probe:
    """The gradient of all rows: what a step of SGD with the rate 1 takes from them."""

    def __init__(self, module: libra.nn.RowsModule) -> None:
        self.module = module
        self.before = module.read_rows()
        self.optimizer = libra.optim.wrap(torch.optim.SGD([module.handle], lr=1.0), torch.nn.ModuleList([module]))

    def gradient(self) -> Tensor:
        self.optimizer.step()
        return self.before - self.module.read_rows()


def naive_bag(rows: Tensor, bags: list[Tensor], weights: list[Tensor] | None, mode: str, padding: int | None, by_frequency: bool) -> Tensor:
    """The documentation of torch.nn.EmbeddingBag, written down."""
    every = torch.cat(bags) if bags else torch.zeros(0, dtype=torch.int64)
    counts = torch.bincount(every, minlength=rows.shape[0]).clamp(min=1)
    outputs = []
    for index, bag in enumerate(bags):
        kept = torch.ones_like(bag, dtype=torch.bool) if padding is None else bag != padding
        found = rows[bag[kept]]
        if by_frequency:
            # The value is that of the rows, and the gradient is divided.
            scale = 1.0 / counts[bag[kept]].unsqueeze(1)
            found = found * scale + (found - found * scale).detach()
        if weights is not None:
            found = found * weights[index][kept].unsqueeze(1)
        if len(found) == 0:
            outputs.append(rows.sum(0) * 0.0)
        elif mode == "sum":
            outputs.append(found.sum(0))
        elif mode == "mean":
            outputs.append(found.mean(0))
        else:
            outputs.append(found.max(0).values)
    return torch.stack(outputs) if outputs else rows[:0]


def check(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("two_dimensional", [False, True], ids=["offsets", "2-d"])
def test_bags_are_those_of_torch(mode: str, two_dimensional: bool) -> None:
    rng = random.Random(f"{mode}{two_dimensional}")
    torch.manual_seed(rng.randrange(1 << 30))
    for case in range(CASES):
        rows, width = rng.randint(1, 30), rng.randint(1, 9)
        padding = rng.choice([None, rng.randrange(rows), -1])
        includes_last = rng.random() < 0.3 and not two_dimensional
        weighted = mode == "sum" and rng.random() < 0.5
        by_frequency = mode != "max" and not weighted and rng.random() < 0.2
        module = libra.nn.EmbeddingBag(
            rows, width, mode=mode, include_last_offset=includes_last, padding_idx=padding,
            scale_grad_by_freq=by_frequency, name=f"{mode}-{two_dimensional}-{case}",
        )  # fmt: skip
        probe = Probe(module)
        dtype = rng.choice([torch.int64, torch.int32])
        if two_dimensional:
            size = rng.randint(0, 6)
            sizes = [size] * rng.randint(0, 8)
        else:
            sizes = [rng.choice([0, 1, 2, 5]) for _ in range(rng.randint(0, 8))]
        bags = [torch.randint(rows, (size,)) for size in sizes]
        dense = module.read_rows().requires_grad_()
        weights = torch.randn(sum(sizes)) if weighted else None
        mine_weights = None if weights is None else weights.clone().requires_grad_()
        their_weights = None if weights is None else weights.clone().requires_grad_()
        split = None if their_weights is None else list(their_weights.split(sizes))
        theirs = naive_bag(dense, bags, split, mode, module.padding_idx, by_frequency)
        flat = torch.cat(bags) if bags else torch.zeros(0, dtype=torch.int64)
        if two_dimensional:
            shape = (len(sizes), sizes[0] if sizes else 3)
            shaped = None if mine_weights is None else mine_weights.reshape(shape)
            mine = module(flat.reshape(shape).to(dtype), per_sample_weights=shaped)
        else:
            offsets = torch.tensor([0, *sizes]).cumsum(0)
            offsets = offsets if includes_last else offsets[:-1]
            mine = module(flat.to(dtype), offsets.to(dtype), mine_weights)
        check(mine, theirs)
        upstream = torch.randn_like(theirs)
        theirs.backward(upstream)
        mine.backward(upstream)
        check(probe.gradient(), dense.grad)  # type: ignore[arg-type]
        if mine_weights is not None and their_weights is not None:
            of_torch = their_weights.grad
            check(mine_weights.grad, torch.zeros_like(weights) if of_torch is None else of_torch)  # type: ignore[arg-type]


def test_rows_are_those_of_torch() -> None:
    rng = random.Random(1)
    torch.manual_seed(1)
    for case in range(2 * CASES):
        rows, width = rng.randint(1, 30), rng.randint(1, 9)
        padding = rng.choice([None, rng.randrange(rows), -1])
        by_frequency = rng.random() < 0.3
        module = libra.nn.Embedding(
            rows, width, padding_idx=padding, scale_grad_by_freq=by_frequency, name=f"rows-{case}"
        )
        probe = Probe(module)
        twin = module.to_torch()
        shape = rng.choice([(), (3,), (0,), (2, 3), (4, 1, 2)])
        ids = torch.randint(rows, shape)
        if rng.random() < 0.3 and ids.dim() == 2:
            ids = ids.T
        mine, theirs = module(ids), twin(ids)
        check(mine, theirs)
        upstream = torch.randn_like(theirs)
        theirs.backward(upstream)
        mine.backward(upstream)
        check(probe.gradient(), twin.weight.grad)  # type: ignore[arg-type]


def test_bags_are_those_of_the_module_of_torch() -> None:
    """Where torch is right: without scale_grad_by_freq."""
    torch.manual_seed(2)
    for mode in ("sum", "mean", "max"):
        module = libra.nn.EmbeddingBag(20, 5, mode=mode, padding_idx=3, name=mode)
        twin = module.to_torch()
        ids, offsets = torch.randint(20, (40,)), torch.tensor([0, 7, 7, 20])
        check(module(ids, offsets), twin(ids, offsets))
        check(module(ids.reshape(8, 5)), twin(ids.reshape(8, 5)))
        nested = torch.nested.nested_tensor([ids[:3], ids[3:4], ids[4:]], layout=torch.jagged)
        check(module(nested), twin(ids, torch.tensor([0, 3, 4])))
