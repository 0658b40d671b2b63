"""Compiled models: look-ups are graph breaks, and what they compute is the same."""

from __future__ import annotations

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
