"""Rows that are frozen, admitted or evicted, and tables that are frozen."""

from __future__ import annotations

from typing import Any

import libra_ps as libra
import pytest
import torch
from twin import batch, difference, one, rows_of, twins


def test_a_gradient_of_a_row_that_is_not_admitted_is_dropped_and_counted() -> None:
    model, optimizer = one(admission=libra.Admission(after=2))
    for ids, rows in (([1, 4], [0, 0]), ([4, 7], [0, -1]), ([1, 4], [-1, -2])):
        optimizer.zero_grad()
        model(torch.tensor(ids)).sum().backward()
        optimizer.step()
        found = rows_of(model)[:, 0]
        assert found[[1, 4]].tolist() == rows and found.sum().item() == sum(rows)
    stats = libra.stats()["tables"]["0"]
    assert (stats["gradients_not_admitted"], stats["rows"]) == (3, 2)


def test_a_row_evicted_between_pull_and_push_begins_again() -> None:
    model, optimizer = one(eviction=libra.Eviction(idle_steps=2))

    def step(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step(3 * model(torch.tensor([5])).sum())
    held = model(torch.tensor([6, 5])).sum()
    for id in (1, 2, 3):
        step(model(torch.tensor([id])).sum())
    assert rows_of(model)[5].tolist() == [0, 0]
    step(held)
    # Rows 1 and 2 have gone meanwhile, too.
    assert rows_of(model)[:, 0].tolist() == [0, 0, 0, -1, 0, -1, -1, 0, 0, 0]
    stats = libra.stats()["tables"]["0"]
    assert (stats["rows"], stats["rows_evicted"]) == (3, 3)


@pytest.mark.parametrize("clips", [False, True])
def test_frozen_rows_train_as_those_of_a_twin_without_their_gradient(clips: bool) -> None:
    mine, theirs = twins()
    frozen = [0, 3, 7, 20]
    for module in (mine[0].a, mine[0].b):
        native = module.table.session.native
        ids = torch.tensor(frozen)
        native.freeze(module.table.number, ids.data_ptr(), len(frozen))
    for _ in range(20):
        x, y = batch()
        for model, optimizer in (mine, theirs):
            optimizer.zero_grad()
            model(x, y).mean().backward()
        for module in (theirs[0].a, theirs[0].b):
            module.weight.grad[frozen] = 0.0
        if clips:
            norms = [torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).item() for model, _ in (mine, theirs)]
            assert norms[0] == pytest.approx(norms[1], rel=1e-5)
        for _, optimizer in (mine, theirs):
            optimizer.step()
    assert difference(mine[0], theirs[0]) < 2e-6


@pytest.mark.parametrize("kind", ["rows", "sum", "mean", "max", "second"])
def test_frozen_rows_are_read_and_never_pushed(kind: str) -> None:
    options: dict[str, Any] = {"frozen": torch.tensor([1, 2]), "name": "item", "init": libra.Zero()}
    if kind in ("sum", "mean", "max"):
        module: Any = libra.nn.EmbeddingBag(10, 2, mode=kind, **options)
    else:
        module = libra.nn.Embedding(10, 2, double_backward=kind == "second", **options)
    model = torch.nn.Sequential(module)
    optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5), model)
    values = torch.randn(10, 2)
    module.load_rows(values)
    # A gradient that is not a number goes to frozen rows alone.
    (module(torch.tensor([[1, 2]])).sum() * float("nan")).backward()
    assert module.handle.grad.item() == 0.0
    optimizer.step()
    optimizer.zero_grad()
    module(torch.tensor([[2, 1, 5]])).sum().backward()
    norm = module.handle.grad.item()
    optimizer.step()
    changed = (module.read_rows() - values).norm().item()
    assert changed == pytest.approx(norm, rel=1e-5) and torch.equal(module.read_rows()[[1, 2]], values[[1, 2]])
    stats = libra.stats()["tables"]["item"]
    assert stats["rows_pushed"] <= 1 and stats["rows_pulled"] >= 3
    libra.Client().push("item", [1, 5], torch.ones(2, 2))
    assert torch.equal(module.read_rows()[[1, 2]], values[[1, 2]])


def test_no_row_is_made_for_frozen_ids() -> None:
    model, optimizer = one(None, hash=True, frozen=[-5, 1 << 62])
    (model(torch.tensor([-5, 1 << 62, 3]))).sum().backward()
    optimizer.step()
    assert libra.stats()["tables"]["0"]["rows"] == 1
    assert model(torch.tensor([-5, 3])).tolist() == [[0, 0], [-1, -1]]
    with pytest.raises(libra.Mismatch, match="frozen has 1 ids, and had 2 others"):
        libra.nn.Embedding(None, 2, hash=True, init=libra.Zero(), frozen=[4], name="0")


def test_tables_of_a_collection_have_the_same_options() -> None:
    config = libra.nn.TableConfig(
        "a", 10, 2, init=libra.Zero(), frozen=[1], admission=libra.Admission(after=2), eviction=libra.Eviction(idle_steps=9)
    )
    model = torch.nn.Sequential(libra.nn.EmbeddingBagCollection([config]))
    optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)
    for _ in range(3):
        optimizer.zero_grad()
        model({"a": torch.tensor([[1, 2]])})["a"].sum().backward()
        optimizer.step()
    stats = libra.stats()["tables"]["a"]
    assert [stats[name] for name in ("rows", "gradients_not_admitted", "rows_evicted", "rows_pushed")] == [1, 1, 0, 3]


def test_frozen_tables_are_read_and_not_changed() -> None:
    mine, theirs = twins()
    for model in (mine[0], theirs[0]):
        model.a.requires_grad_(False)
    for step in range(6):
        x, y = batch()
        if step == 3:
            for model in (mine[0], theirs[0]):
                model.a.requires_grad_(True)
        for model, optimizer in (mine, theirs):
            optimizer.zero_grad()
            model(x, y).mean().backward()
            optimizer.step()
    assert difference(mine[0], theirs[0]) < 1e-6


def test_freezing_between_forward_and_backward_is_that_of_the_twin() -> None:
    model, optimizer = one()
    loss = model(torch.tensor([1])).sum()
    model.requires_grad_(False)
    loss.backward()
    optimizer.step()
    model.requires_grad_(True)
    assert not rows_of(model).any()


def test_pretrained_rows_are_frozen() -> None:
    module = libra.nn.Embedding.from_pretrained(torch.ones(3, 2), name="item")
    assert not module.handle.requires_grad and not module(torch.tensor([1])).requires_grad
