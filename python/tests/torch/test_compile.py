"""Compiled models: look-ups are graph breaks, and what they compute is the same."""

from __future__ import annotations

import libra_ps as libra
import pytest
import torch
from twin import batch, difference, twins


@pytest.mark.filterwarnings("ignore")
def test_compiled_models_train_as_their_twins(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    mine, theirs = twins()
    compiled = torch.compile(mine[0], backend="aot_eager")
    for step in range(12):
        x, y = batch(16 + step % 3)
        for call, (model, optimizer) in ((compiled, mine), (theirs[0], theirs)):
            optimizer.zero_grad()
            loss = call(x, y).mean() + call(x, y).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
    assert difference(mine[0], theirs[0]) < 2e-6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_equal_lookups_with_equal_gradients_are_both_counted(
    backend: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model = torch.nn.Sequential(libra.nn.Embedding(10, 2, init=libra.Zero()), torch.nn.Linear(2, 1))
    optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)
    with torch.no_grad():
        model[1].weight.fill_(1.0)

    @torch.compile(backend=backend)
    def forward(ids: torch.Tensor) -> torch.Tensor:
        return model[1](model[0](ids) + model[0](ids)).sum()  # type: ignore[no-any-return]

    ids = torch.tensor([1, 4])
    # A pass for dense parameters alone leaves rows as they are.
    forward(ids).backward(inputs=[model[1].weight])
    optimizer.step()
    assert model[0].handle.grad is None and not model[0].read_rows().any()  # type: ignore[operator]
    with torch.no_grad():
        model[1].weight.fill_(1.0)
    optimizer.zero_grad()
    forward(ids).backward()
    optimizer.step()
    assert model[0].read_rows()[:5, 0].tolist() == [0, -2, 0, 0, -2]  # type: ignore[operator]
