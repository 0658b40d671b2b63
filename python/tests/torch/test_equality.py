"""Training with tables is training with dense embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libra_ps as libra
import pytest
import torch
from twin import batch, twins

Make = Callable[[Any], torch.optim.Optimizer]


def every_row(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch in which every row has a gradient: with momentum, dense embeddings move others too."""
    return torch.randperm(rows), torch.stack([torch.randperm(rows) for _ in range(3)], 1)


@pytest.mark.parametrize(
    ("make", "touches_all"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.02), False),
        (lambda p: torch.optim.Adagrad(p, lr=0.05), False),
        (lambda p: torch.optim.Adagrad(p, lr=0.05, eps=1e-6), False),
        (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), True),
        (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.01), True),
        (lambda p: torch.optim.RMSprop(p, lr=1e-3), True),
        (lambda p: torch.optim.RMSprop(p, lr=1e-3, alpha=0.9, eps=1e-6), True),
        (lambda p: torch.optim.Adam(p, lr=1e-3), True),
        (lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1), True),
        (lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1), True),
    ],
    ids=["sgd", "adagrad", "adagrad-eps", "momentum", "nesterov-decay", "rmsprop", "rmsprop-alpha", "adam", "adamw", "adam-decay"],
)
def test_losses_of_200_steps_are_those_of_torch(make: Make, touches_all: bool) -> None:
    mine, theirs = twins(make)
    for step in range(200):
        x, y = every_row(50) if touches_all else batch()
        losses = []
        for model, optimizer in (mine, theirs):
            loss = model(x, y).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        # Of AdamW torch rounds the factor of the decay, and the server the sum of both changes.
        relative = 5e-6 if type(mine[1]) is torch.optim.AdamW else 1e-6
        assert losses[0] == pytest.approx(losses[1], rel=relative, abs=1e-9), step


def test_adam_counts_the_steps_of_each_row() -> None:
    """Against Adam written out for each row: torch's moves rows without a gradient."""
    beta1, beta2, eps, lr = 0.9, 0.999, 1e-8, 0.01
    torch.manual_seed(5)
    model = torch.nn.Sequential(libra.nn.Embedding(40, 4), torch.nn.Linear(4, 1))
    rows = libra.to_torch(model)[0].weight.detach().double()  # type: ignore[index,union-attr]
    mean, square, steps = torch.zeros_like(rows), torch.zeros_like(rows), torch.zeros(40, 1).double()
    optimizer = libra.optim.wrap(torch.optim.Adam(model.parameters(), lr=lr, betas=(beta1, beta2), eps=eps), model)
    for step in range(200):
        x = torch.randint(40, (12,))
        table = rows.float().clone().requires_grad_()
        loss = model(x).square().mean()
        twin = model[1](torch.nn.functional.embedding(x, table)).square().mean()
        assert loss.item() == pytest.approx(twin.item(), rel=1e-6), step
        (gradient,) = torch.autograd.grad(twin, table)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        touched = torch.zeros(40, dtype=torch.bool)
        touched[x] = True
        g = gradient.double()[touched]
        steps[touched] += 1
        mean[touched] = beta1 * mean[touched] + (1 - beta1) * g
        square[touched] = beta2 * square[touched] + (1 - beta2) * g * g
        corrected = mean[touched] / (1 - beta1 ** steps[touched])
        root = (square[touched] / (1 - beta2 ** steps[touched])).sqrt()
        rows[touched] -= lr * corrected / (root + eps)


def test_parameter_groups_give_tables_their_rates() -> None:
    def make(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = list(parameters)
        return torch.optim.SGD([{"params": [first], "lr": 0.5}, {"params": rest}], lr=0.01)

    mine, theirs = twins(make)
    for _ in range(20):
        x, y = batch()
        losses = []
        for model, optimizer in (mine, theirs):
            optimizer.zero_grad()
            loss = model(x, y).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_schedulers_change_the_rates_of_tables() -> None:
    mine, theirs = twins(lambda parameters: torch.optim.Adagrad(parameters, lr=0.1))
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5) for _, optimizer in (mine, theirs)]
    for _ in range(30):
        x, y = batch()
        losses = []
        for (model, optimizer), scheduler in zip((mine, theirs), schedulers):
            optimizer.zero_grad()
            loss = model(x, y).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_rules_of_tables_may_be_others_than_the_optimizers() -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(10, 2, name="item", init=libra.Zero()), torch.nn.Linear(2, 1))
    rule = libra.optim.Ftrl(alpha=0.5, l1=100.0)
    optimizer = libra.optim.wrap(torch.optim.NAdam(model.parameters()), model, tables={"item": rule})
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.tensor([3])).sum().backward()
        optimizer.step()
    # A large l1 keeps rows at 0.
    assert not model[0].read_rows().any()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: torch.optim.Adam(p, amsgrad=True), r"Adam\(amsgrad=True\) is no rule of tables: take one of SGD, Mom"),
        (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), r"SGD\(maximize=True\)"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5, dampening=0.5), r"SGD\(dampening=0.5\)"),
        (lambda p: torch.optim.RMSprop(p, centered=True), r"RMSprop\(centered=True\)"),
        (lambda p: torch.optim.RMSprop(p, momentum=0.5), r"RMSprop\(momentum=0.5\)"),
        (lambda p: torch.optim.Adagrad(p, lr_decay=0.1), r"Adagrad\(lr_decay=0.1\)"),
        (lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.1), r"Adagrad\(initial_accumulator_value=0.1\)"),
        (lambda p: torch.optim.NAdam(p), "NAdam is no rule of tables"),
        (lambda p: torch.optim.LBFGS(p), "LBFGS computes with the values of its parameters"),
    ],
)
def test_optimizers_that_are_no_rules_are_refused(make: Make, text: str) -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(10, 2))
    with pytest.raises(libra.NotSupported, match=text):
        libra.optim.wrap(make(model.parameters()), model)


def test_rules_out_of_range_are_refused() -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(10, 2))
    with pytest.raises(ValueError, match='table "0": rate = inf must be finite and above 0'):
        libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=float("inf")), model)
    with pytest.raises(ValueError, match='table "0": rate = 0 must be finite and above 0'):
        libra.optim.wrap(torch.optim.SGD(model.parameters(), 1.0), model, {"0": libra.optim.SGD(0.0)})
    with pytest.raises(ValueError, match='table "0": momentum = 1 must be at least 0 and below 1'):
        libra.optim.wrap(torch.optim.SGD(model.parameters(), 1.0, momentum=1.0), model)
    assert libra.stats()["tables"]["0"]["rows"] == 0
