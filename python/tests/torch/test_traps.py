"""Behaviour of tables in the cases that sparse gradients usually get wrong, against a dense twin."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import libra_ps as libra
import pytest
import torch
from twin import Model, batch, difference, twins


def one(rows: int = 10, width: int = 2, **options: Any) -> tuple[Any, torch.optim.Optimizer]:
    """A table with SGD of the rate 1, whose rows begin at 0."""
    model = torch.nn.Sequential(libra.nn.Embedding(rows, width, init=libra.Zero(), **options))
    return model, libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)


def rows_of(model: Any) -> torch.Tensor:
    libra.flush()
    return model[0].read_rows()  # type: ignore[no-any-return]


# Ids


def test_gradients_of_an_id_are_summed_over_lookups_and_read_once() -> None:
    model, optimizer = one()
    (model(torch.tensor([1, 2, 1])).sum() + 10 * model(torch.tensor([1])).sum()).backward()
    optimizer.step()
    assert rows_of(model)[:3].tolist() == [[0, 0], [-12, -12], [-1, -1]]
    assert libra.stats()["tables"]["0"]["rows_pulled"] == 2


def test_a_table_in_two_modules_has_one_gradient() -> None:
    first = libra.nn.Embedding(10, 2, name="item", init=libra.Zero())
    second = libra.nn.EmbeddingBag(10, 2, name="item", init=libra.Zero(), mode="sum")
    model = torch.nn.ModuleList([first, second])
    assert len(list(model.parameters())) == 1
    optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)
    (first(torch.tensor([3])).sum() + second(torch.tensor([[3, 3, 4]])).sum()).backward()
    optimizer.step()
    assert second.read_rows()[3:5].tolist() == [[-3, -3], [-1, -1]]
    assert libra.stats()["tables"]["item"]["rows_pulled"] == 2


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_batches_without_ids_are_a_step(shape: tuple[int, ...]) -> None:
    model, optimizer = one()
    output = model(torch.zeros(shape, dtype=torch.int64))
    assert output.shape == (*shape, 2)
    output.sum().backward()
    optimizer.step()
    assert libra.stats()["steps"] == 1 and not rows_of(model).any()


def test_a_batch_of_padding_alone_has_a_zero_gradient() -> None:
    model, optimizer = one(padding_idx=3)
    model(torch.tensor([3, 3])).sum().backward()
    assert model[0].handle.grad.item() == 0.0
    optimizer.step()
    counts = libra.stats()["tables"]["0"]
    assert counts["rows_pulled"] == counts["rows_pushed"] == 0


def test_padding_reads_as_its_weights_say() -> None:
    weights = torch.arange(6.0).reshape(3, 2)
    module = libra.nn.Embedding.from_pretrained(weights, padding_idx=-1)
    assert module(torch.tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
    assert libra.nn.Embedding(3, 2, padding_idx=1, name="new")(torch.tensor([1])).tolist() == [[0, 0]]


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


def test_ids_changed_in_place_have_no_effect() -> None:
    model, optimizer = one()
    ids = torch.tensor([1, 2])
    output = model(ids)
    ids.fill_(7)
    output.sum().backward()
    optimizer.step()
    assert rows_of(model).sum(1).tolist() == [0, -2, -2, 0, 0, 0, 0, 0, 0, 0]


def test_ids_of_other_kinds_are_taken() -> None:
    model, _ = one()
    for ids in (torch.tensor([[1, 2], [3, 4]]).T, torch.tensor([1, 2], dtype=torch.int32), torch.tensor([1], dtype=torch.uint8)):
        assert model(ids).shape == (*ids.shape, 2)
    with torch.inference_mode():
        ids = torch.tensor([1, 2])
    model(ids).sum().backward()


# Frozen rows


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


# Passes


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


def test_lookups_from_several_threads_are_safe() -> None:
    module = libra.nn.Embedding(1000, 4, name="item").eval()
    rows = module.read_rows()
    failures = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(200):
            ids = torch.randint(1000, (64,), generator=generator)
            with torch.no_grad():
                if not torch.equal(module(ids), rows[ids]):
                    failures.append(ids)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# Evaluation


def test_evaluation_makes_no_rows() -> None:
    model, optimizer = one()
    model.eval()
    with torch.no_grad():
        model(torch.arange(10))
    assert libra.stats()["tables"]["0"]["rows_pushed"] == 0
    assert model[0].table.session.native.scan(0, 0, None)[0] == b""
    model(torch.tensor([3])).sum().backward()
    optimizer.step()
    with torch.no_grad():
        assert model(torch.tensor([3])).tolist() == [[-1, -1]]


def test_evaluation_after_a_step_reads_it_in_async_mode() -> None:
    libra.shutdown()
    libra.init(mode="async")
    model, optimizer = one(1000, 16)
    for step in range(1, 5):
        model.train()
        optimizer.zero_grad()
        model(torch.arange(1000)).sum().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            assert torch.all(model(torch.arange(1000)) == -step)


# Copies


def test_modules_cannot_be_copied_or_pickled() -> None:
    model, _ = one()
    with pytest.raises(libra.Error, match="libra_ps.to_torch"):
        copy.deepcopy(model)
    with pytest.raises(libra.Error, match="libra_ps.to_torch"):
        torch.optim.swa_utils.AveragedModel(model)
    with pytest.raises(libra.Error, match="libra_ps.save"):
        pickle.dumps(model)
    with pytest.raises(libra.Error, match="use DistributedDataParallel"):
        model[0]._replicate_for_data_parallel()


def test_half_precision_is_that_of_the_output() -> None:
    model, optimizer = one()
    model.half()
    output = model(torch.tensor([1]))
    assert output.dtype is torch.float16 and model[0].handle.dtype is torch.float32
    output.sum().backward()
    optimizer.step()
    assert rows_of(model)[1].tolist() == [-1, -1]
    other = libra.nn.Embedding(4, 2, name="bf16", output_dtype=torch.bfloat16)
    assert other(torch.tensor([1])).dtype is torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert libra.nn.Embedding(4, 2, name="f32")(torch.tensor([1])).dtype is torch.float32


def test_assigned_handles_get_their_hook_again() -> None:
    model, optimizer = one()
    handle = torch.nn.Parameter(torch.zeros(1))
    model[0].table.binding = None
    model[0]._parameters["handle"] = handle
    libra.optim.replace_handles(optimizer, {id(optimizer.param_groups[0]["params"][0]): handle})
    model(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert rows_of(model)[1].tolist() == [-1, -1]


@pytest.mark.parametrize("overwrites", [False, True])
def test_handles_keep_their_hook_when_a_module_is_loaded_or_converted(overwrites: bool) -> None:
    model, optimizer = one()
    handle = model[0].handle
    torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
    try:
        model.load_state_dict({"0.weight": torch.ones(10, 2)}, assign=True)
        model.double().float()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert model[0].handle is handle
    model(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert rows_of(model)[:2].tolist() == [[1, 1], [0, 0]]


def test_sharded_handles_are_refused(tmp_path: Path) -> None:
    from torch.distributed.fsdp import fully_shard

    model, _ = one()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
        with pytest.raises(libra.NotSupported, match="is a DTensor: name it in ignored_params of fully_shard"):
            model[0](torch.tensor([1]))
    finally:
        torch.distributed.destroy_process_group()


# Optimizers


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


def test_a_table_is_in_one_optimizer() -> None:
    model, optimizer = one()
    with pytest.raises(ValueError, match='table "0" has two optimizers'):
        libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)
    dense = torch.nn.Sequential(libra.nn.Embedding(4, 2, name="alone"), torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match='table "alone" is in no parameter group of the optimizer'):
        libra.optim.wrap(torch.optim.SGD(dense[1].parameters(), lr=1.0), dense)
    with pytest.raises(ValueError, match="the model has no module of libra_ps.nn"):
        libra.optim.wrap(torch.optim.SGD(dense[1].parameters(), lr=1.0), dense[1])
    del optimizer


def test_a_cell_that_runs_twice_continues_with_the_rows() -> None:
    kept = []
    for turn in range(1, 4):
        model, optimizer = one()
        optimizer.zero_grad()
        model(torch.tensor([1])).sum().backward()
        optimizer.step()
        assert rows_of(model)[1].tolist() == [-turn, -turn]
        kept.append((model, optimizer))


def test_the_same_name_of_another_table_is_refused() -> None:
    libra.nn.Embedding(10, 2, name="item")(torch.tensor([1]))
    with pytest.raises(libra.Mismatch, match='a table "item" of another definition: width is 3, and was 2'):
        libra.nn.Embedding(10, 3, name="item")


def test_steps_after_a_shutdown_are_refused() -> None:
    model, optimizer = one()
    loss = model(torch.tensor([1])).sum()
    libra.shutdown()
    with pytest.raises(libra.Error, match="shut down"):
        loss.backward()
        optimizer.step()
    libra.init()
    with pytest.raises(libra.Error, match="a session that was shut down: build the model again"):
        model(torch.tensor([1]))


# Defaults


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_the_default_dtype_is_not_that_of_rows(default: torch.dtype) -> None:
    torch.set_default_dtype(default)
    try:
        model, optimizer = one()
        weights = torch.ones(1, 1, dtype=default, requires_grad=True)
        bag = libra.nn.EmbeddingBag(10, 2, mode="sum", name="bag")
        libra.optim.wrap(torch.optim.SGD(bag.parameters(), lr=1.0), torch.nn.ModuleList([bag]))
        assert model(torch.tensor([1])).dtype is torch.float32
        (model(torch.tensor([1])).sum() + bag(torch.tensor([[1]]), per_sample_weights=weights).sum()).backward()
        optimizer.step()
        assert rows_of(model)[1].tolist() == [-1, -1]
        assert weights.grad is not None and weights.grad.dtype is default
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_default_device_is_not_that_of_rows() -> None:
    ids = torch.tensor([1])
    with torch.device("meta"):
        model, optimizer = one()
        output = model(ids)
        assert output.is_cpu
        output.sum().backward()
        optimizer.step()
        assert rows_of(model)[1].tolist() == [-1, -1]
