"""Dense parameters that the servers keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import libra_ps as libra
import pytest
import torch
from libra_ps.session import Session, current
from twin import Model, batch

Make = Callable[[Any], torch.optim.Optimizer]


def pair(make: Make, mode: str = "sync") -> tuple[tuple[Model, torch.optim.Optimizer], tuple[Model, torch.optim.Optimizer]]:
    """A model whose dense parameters are on the servers, and one whose optimizer of torch has them."""
    torch.manual_seed(3)
    model = Model(libra.nn.Embedding, libra.nn.EmbeddingBag)
    dense = libra.to_torch(model)
    assert isinstance(dense, Model)
    optimizer = libra.optim.wrap(make(model.parameters()), model, dense="server")
    return (model, optimizer), (dense, make(dense.parameters()))


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, *inputs: torch.Tensor) -> float:
    loss = model(*inputs).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.02),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adagrad(p, lr=0.05),
        lambda p: torch.optim.RMSprop(p, lr=1e-3),
        lambda p: torch.optim.Adam(p, lr=1e-3),
    ],
    ids=["sgd", "nesterov", "adagrad", "rmsprop", "adam"],
)
def test_dense_parameters_on_servers_are_those_of_torch(make: Make) -> None:
    mine, theirs = pair(make)
    for index in range(100):
        # Every row has a gradient: dense embeddings move the others, too.
        inputs = torch.randperm(50), torch.stack([torch.randperm(50) for _ in range(3)], 1)
        assert step(*mine, *inputs) == pytest.approx(step(*theirs, *inputs), rel=1e-5, abs=1e-9), index
    found, expected = mine[0].state_dict(), theirs[0].state_dict()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=1e-5, atol=1e-6), name


def test_the_optimizer_of_torch_keeps_no_state_of_them() -> None:
    (model, optimizer), _ = pair(lambda p: torch.optim.Adam(p, lr=1e-3))
    step(model, optimizer, *batch())
    assert not optimizer.state
    assert model.dense.weight.grad is not None, "gradients stay until they are cleared"


def test_a_scheduler_changes_their_rate() -> None:
    mine, theirs = pair(lambda p: torch.optim.SGD(p, lr=0.1))
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1) for _, optimizer in (mine, theirs)]
    for _ in range(6):
        inputs = batch()
        assert step(*mine, *inputs) == pytest.approx(step(*theirs, *inputs), rel=1e-6)
        for scheduler in schedulers:
            scheduler.step()


def test_clipping_and_scaling_act_on_them() -> None:
    mine, theirs = pair(lambda p: torch.optim.SGD(p, lr=0.1))
    scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
    for _ in range(5):
        inputs = batch()
        for (model, optimizer), scaler in zip((mine, theirs), scalers):
            optimizer.zero_grad()
            scaler.scale(model(*inputs).mean()).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            scaler.step(optimizer)
            scaler.update()
    found, expected = mine[0].state_dict(), theirs[0].state_dict()
    assert all(torch.allclose(found[name], value, atol=1e-6) for name, value in expected.items())


def test_values_that_are_loaded_are_those_of_the_servers(tmp_path: Path) -> None:
    (model, optimizer), (dense, _) = pair(lambda p: torch.optim.Adam(p, lr=0.01))
    for _ in range(3):
        step(model, optimizer, *batch())
    libra.save(tmp_path, model, optimizer, epoch=1)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    inputs = batch()
    after = [step(model, optimizer, *inputs) for _ in range(3)]
    assert libra.load(tmp_path, model, optimizer) == {"epoch": 1}
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())
    # The states of the rules are those of then, too.
    assert [step(model, optimizer, *inputs) for _ in range(3)] == after
    model.load_state_dict(dense.state_dict())
    expected = dense(*inputs).mean()
    step(model, optimizer, *inputs)
    model.load_state_dict(dense.state_dict())
    assert model(*inputs).mean().item() == pytest.approx(expected.item(), rel=1e-6)


def test_groups_have_rules_of_their_own() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(libra.nn.Embedding(10, 4), torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    groups = [{"params": model[:2].parameters(), "lr": 0.5}, {"params": model[2].parameters(), "lr": 0.0}]
    optimizer = libra.optim.wrap(torch.optim.SGD(groups, lr=0.1), model, dense="server")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    step(model, optimizer, torch.arange(10))
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"0.weight", "1.weight", "1.bias"}


def test_what_cannot_be_kept_is_refused() -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(10, 4), torch.nn.Linear(4, 1).double())
    with pytest.raises(libra.NotSupported, match='dense="server" is for parameters of float32'):
        libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, dense="server")
    with pytest.raises(ValueError, match='dense = "somewhere" must be "local" or "server"'):
        libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, dense="somewhere")
    (model_of_pair, optimizer), _ = pair(lambda p: torch.optim.SGD(p, lr=0.1))
    with pytest.raises(libra.NotSupported, match="closure"):
        optimizer.step(lambda: model_of_pair(*batch()).sum())


def test_rows_are_read_before_they_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = pair(lambda p: torch.optim.SGD(p, lr=0.02))
    session = current()
    monkeypatch.setattr(session, "is_cluster", True)
    ahead: list[int] = []

    def read_ahead(ids: list[Any]) -> None:
        ahead.append(len(ids))
        Session.read_ahead(session, ids)

    monkeypatch.setattr(session, "read_ahead", read_ahead)
    for size in (8, 5, 9):
        inputs = batch(size)
        assert step(*mine, *inputs) == pytest.approx(step(*theirs, *inputs), rel=1e-6)
    assert ahead == [0, 2, 2], "the look-ups of the first forward pass are expected in the next"
    x, y = batch()
    with pytest.raises(IndexError):
        mine[0](x + 10**6, y)
    mine[0].eval()
    mine[0](x, y)
    assert ahead[3:] == [2], "rows of an evaluation are read by its look-ups"
