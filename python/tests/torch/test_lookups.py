"""Ids, padding, types and devices of look-ups."""

from __future__ import annotations

import threading

import libra_ps as libra
import pytest
import torch
from twin import one, rows_of


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
