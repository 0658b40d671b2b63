"""Handles of tables: copies of modules, the optimizer of a table, and the session it is of."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import libra_ps as libra
import pytest
import torch
from twin import one, rows_of


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
