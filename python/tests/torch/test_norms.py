"""Norms of gradients, loss scaling, and gradients that are not finite."""

from __future__ import annotations

import copy

import libra_ps as libra
import pytest
import torch
from twin import batch, difference, one, rows_of, twins


def test_norms_are_those_of_the_twin() -> None:
    mine, theirs = twins()
    x, y = batch()
    norms = []
    for model, _ in (mine, theirs):
        model(x, y).mean().backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3).item())
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    assert mine[0].a.handle.grad.item() == pytest.approx(theirs[0].a.weight.grad.norm().item(), rel=1e-6)


def test_norms_that_are_not_finite_raise_if_asked() -> None:
    for model, _ in twins():
        x, y = batch()
        (model(x, y).mean() * float("inf")).backward()
        with pytest.raises(RuntimeError, match="total norm of order 2.0 .* is non-finite"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1, error_if_nonfinite=True)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscales", [False, True])
def test_loss_scaling_skips_the_same_steps(fused: bool, unscales: bool) -> None:
    mine, theirs = twins(lambda parameters: torch.optim.SGD(parameters, lr=0.05, fused=fused))
    scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5) for _ in range(2)]
    for step in range(40):
        x, y = batch()
        scales = []
        for (model, optimizer), scaler in zip((mine, theirs), scalers):
            optimizer.zero_grad()
            loss = model(x, y).mean()
            if step % 7 == 3:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            if unscales:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        assert scales[0] == scales[1]
    assert difference(mine[0], theirs[0]) < 1e-5


def test_infinite_gradients_are_not_pushed() -> None:
    model, optimizer = one()
    dense = torch.nn.Linear(2, 1)
    optimizer.add_param_group({"params": dense.parameters()})
    before = copy.deepcopy(dense.state_dict())
    (dense(model(torch.tensor([1, 2]))).sum() * float("nan")).backward()
    with pytest.raises(libra.NotFinite, match='table "0": value 0 of the gradient of row 1 is NaN; nothing was pushed'):
        optimizer.step()
    assert not rows_of(model).any() and all(torch.equal(before[name], value) for name, value in dense.state_dict().items())
    optimizer.zero_grad()
    model(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert rows_of(model)[1].tolist() == [-1, -1]
