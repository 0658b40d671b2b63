"""Backward passes and steps in the orders that training loops have them, against a dense twin."""

from __future__ import annotations

import threading
from typing import Any

import libra_ps as libra
import pytest
import torch
from twin import Model, batch, difference, one, rows_of, twins


def train(changes: Any, steps: int = 20, accumulate: int = 1) -> float:
    """Trains both twins with what `changes` does between backward and step; returns their difference."""
    mine, theirs = twins()
    for _ in range(steps):
        for micro in range(accumulate):
            x, y = batch()
            for model, optimizer in (mine, theirs):
                if micro == 0:
                    optimizer.zero_grad()
                changes.forward(model, x, y)
        for model, optimizer in (mine, theirs):
            changes.before_step(model)
            optimizer.step()
    return difference(mine[0], theirs[0])


class Changes:
    def forward(self, model: Model, x: torch.Tensor, y: torch.Tensor) -> None:
        model(x, y).mean().backward()

    def before_step(self, model: Model) -> None:
        pass


class Clips(Changes):
    def __init__(self, foreach: bool | None) -> None:
        self.foreach = foreach

    def before_step(self, model: Model) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=self.foreach)


class TwoLosses(Changes):
    def forward(self, model: Model, x: torch.Tensor, y: torch.Tensor) -> None:
        output = model(x, y)
        output.mean().backward(retain_graph=True)
        (0.01 * output.square()).mean().backward(retain_graph=True)
        output.mean().backward()


class ClipsBetween(Changes):
    def forward(self, model: Model, x: torch.Tensor, y: torch.Tensor) -> None:
        model(x, y).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


class Halves(Changes):
    def before_step(self, model: Model) -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(0.5)


class Checkpoints(Changes):
    def __init__(self, reentrant: bool) -> None:
        self.reentrant = reentrant

    def forward(self, model: Model, x: torch.Tensor, y: torch.Tensor) -> None:
        x2 = torch.zeros(1, requires_grad=True)
        inner = torch.utils.checkpoint.checkpoint(lambda _: model(x, y), x2, use_reentrant=self.reentrant)
        (inner.mean() + model(x, y).mean()).backward()


class Penalty(Changes):
    def forward(self, model: Model, x: torch.Tensor, y: torch.Tensor) -> None:
        rows = model.a(x)
        loss = model.dense(torch.cat([rows, rows, rows[:, :3]], 1)).square().mean()
        (of_rows,) = torch.autograd.grad(loss, rows, create_graph=True)
        (loss + of_rows.square().sum()).backward()
        model(x, y).mean().backward()


@pytest.mark.parametrize(
    ("changes", "accumulate"),
    [
        (Changes(), 1),
        (Changes(), 4),
        (Clips(None), 1),
        (Clips(True), 2),
        (Clips(False), 1),
        (ClipsBetween(), 3),
        (TwoLosses(), 2),
        (Halves(), 2),
        (Checkpoints(False), 1),
        (Checkpoints(True), 2),
        (Penalty(), 1),
    ],
    ids=["plain", "accumulate", "clip", "clip-foreach", "clip-loop", "clip-between", "losses", "halve", "checkpoint", "reentrant", "penalty"],
)
def test_passes_equal_those_of_the_twin(changes: Changes, accumulate: int) -> None:
    assert train(changes, accumulate=accumulate) < 2e-6


@pytest.mark.parametrize("clear", ["none", "zero", "by hand", "never", "after forward", "second"])
def test_clearing_equals_that_of_the_twin(clear: str) -> None:
    mine, theirs = twins()
    for step in range(12):
        x, y = batch()
        for model, optimizer in (mine, theirs):
            if clear == "after forward":
                loss = model(x, y).mean()
                optimizer.zero_grad()
                loss.backward()
            else:
                if clear in ("none", "zero"):
                    optimizer.zero_grad(set_to_none=clear == "none")
                elif clear == "by hand":
                    for parameter in model.parameters():
                        parameter.grad = None
                elif clear == "second" and step % 2 == 0:
                    optimizer.zero_grad()
                model(x, y).mean().backward()
            optimizer.step()
    assert difference(mine[0], theirs[0]) < 1e-5


def test_a_step_without_a_pass_between_pushes_again() -> None:
    model, optimizer = one()
    model(torch.tensor([1])).sum().backward()
    for _ in range(3):
        optimizer.step()
    assert rows_of(model)[1].tolist() == [-3, -3]


def test_a_backward_after_a_step_uses_the_old_graph() -> None:
    model, optimizer = one()
    loss = model(torch.tensor([1, 4])).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    model(torch.tensor([2])).sum().backward()
    optimizer.step()
    loss.backward()
    optimizer.step()
    assert rows_of(model)[:5].sum(1).tolist() == [0, -4, -4, 0, -4]


def test_a_step_with_a_closure_pushes() -> None:
    mine, theirs = twins()
    for _ in range(5):
        x, y = batch()
        for model, optimizer in (mine, theirs):

            def closure(model: Model = model, optimizer: torch.optim.Optimizer = optimizer) -> float:
                optimizer.zero_grad()
                loss = model(x, y).mean()
                loss.backward()
                return loss.item()

            optimizer.step(closure)
    assert difference(mine[0], theirs[0]) < 1e-6


def test_a_pass_that_raises_changes_nothing() -> None:
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, *_: torch.Tensor) -> Any:
            raise KeyError("planted")

    model, optimizer = one()
    first = model(torch.tensor([1]))
    with pytest.raises(KeyError):
        (Raises.apply(first).sum() + model(torch.tensor([2])).sum()).backward()
    optimizer.zero_grad()
    model(torch.tensor([2])).sum().backward()
    optimizer.step()
    assert rows_of(model).sum().item() == -2


def test_gradients_of_other_inputs_leave_rows_alone() -> None:
    model, optimizer = one()
    dense = torch.nn.Linear(2, 1)
    loss = dense(model(torch.tensor([1]))).sum()
    torch.autograd.grad(loss, dense.weight, retain_graph=True)
    loss.backward(inputs=[dense.weight], retain_graph=True)
    assert model[0].handle.grad is None
    optimizer.step()
    assert not rows_of(model).any()
    loss.backward(inputs=[model[0].handle])
    optimizer.step()
    assert rows_of(model)[1].any()


def test_gradients_taken_by_hand_are_refused_at_the_step() -> None:
    model, optimizer = one()
    handle = model[0].handle
    (handle.grad,) = torch.autograd.grad(model(torch.tensor([1])).sum(), handle)
    assert handle.grad.item() == 0.0
    with pytest.raises(libra.Error, match="torch.autograd.grad does not write .grad of tables"):
        optimizer.step()


def test_weights_may_have_a_gradient_while_rows_have_none() -> None:
    module = libra.nn.EmbeddingBag(10, 2, mode="sum", name="bag")
    module.requires_grad_(False)
    weights = torch.ones(1, 3, requires_grad=True)
    ids = torch.tensor([[1, 2, 1]])
    module(ids, per_sample_weights=weights).sum().backward()
    torch.testing.assert_close(weights.grad, module.read_rows()[ids].sum(2))


def test_second_derivatives_through_rows_are_refused() -> None:
    module = libra.nn.EmbeddingBag(10, 2, mode="sum", name="bag")
    libra.optim.wrap(torch.optim.SGD(module.parameters(), lr=1.0), torch.nn.ModuleList([module]))
    ids = torch.tensor([[1, 2]])
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda factor: (module(ids) * factor).sum())(torch.tensor(1.0))
    weights = torch.ones(1, 2, requires_grad=True)
    loss = module(torch.tensor([[1, 2]]), per_sample_weights=weights).square().sum()
    (of_weights,) = torch.autograd.grad(loss, weights, create_graph=True)
    with pytest.raises(libra.NotSupported, match="double_backward=True"):
        of_weights.sum().backward()


def test_a_pass_without_an_optimizer_is_refused() -> None:
    module = libra.nn.Embedding(10, 2, name="item")
    with pytest.raises(libra.NotPushed, match='table "item" has a gradient and no optimizer: wrap the optimizer'):
        module(torch.tensor([1])).sum().backward()


def test_overlapping_threads_are_refused() -> None:
    model, _ = one()
    ready = threading.Barrier(2)

    class Meets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            ready.wait(10)
            return gradient

    failures: list[str] = []

    def work() -> None:
        first = Meets.apply(model(torch.tensor([1])))
        # What was made last runs first, so both threads have a pass under way when they meet.
        second = model(torch.tensor([2]))
        try:
            (first.sum() + second.sum()).backward()
        except RuntimeError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures and "two threads run backward passes over this table at once" in failures[0]
