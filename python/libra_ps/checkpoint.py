"""Checkpoints of tables and of the dense part, in a directory.

    path/manifest.json            written last: without it there is no checkpoint
    path/<number>/dense.pt        model without tables, optimizer, user data
    path/<number>/<table>.npz     ids, values and states of the rows that are kept
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from .errors import Error, Mismatch
from .nn import RowsModule
from .optim import name_tables
from .session import Session, Table, current

_Ids: TypeAlias = npt.NDArray[np.int64]
_Values: TypeAlias = npt.NDArray[np.float32]

FORMAT = 1
_MANIFEST = "manifest.json"


def _dense(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Values of a model that are not in tables."""
    state: dict[str, torch.Tensor] = {}
    of_tables = [path + "." if path else "" for path, module in model.named_modules() if isinstance(module, RowsModule)]
    names = {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()}
    persistent = {
        (prefix + "." if prefix else "") + name
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    for name in names - persistent:
        if not any(name.startswith(prefix) for prefix in of_tables):
            state[name] = model.get_parameter(name) if name in dict(model.named_parameters()) else model.get_buffer(name)
    return {name: value.detach() for name, value in state.items()}


def save(
    path: str | os.PathLike[str],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    **user: Any,
) -> None:
    """Saves the tables of a model with the states of their rules, its dense part, and what else is given.

    The manifest is written last and moved into its place, so a save that fails leaves the checkpoint before it. In a cluster
    every worker calls it: all that was pushed before is saved, by the worker of rank 0, and what is pushed after is not.
    """
    session = current()
    tables = _tables(model, session)
    session.begin()
    session.refresh()
    session.barrier()
    try:
        if session.rank == 0:
            _save(Path(path), tables, model, optimizer, user)
    finally:
        session.barrier()


def _tables(model: torch.nn.Module, session: Session) -> dict[str, Table]:
    """The tables of a model, and those of the dense parameters that servers keep."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model = {model!r} must be a torch.nn.Module")
    tables = {name: module.open() for name, module in name_tables(model).items()}
    parameters = {id(parameter) for parameter in model.parameters()}
    for group in session.dense:
        if id(group.parameters[0]) in parameters:
            tables[group.table.label] = group.table
    return tables


def _save(
    folder: Path,
    tables: dict[str, Table],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None,
    user: dict[str, Any],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    before = _read_manifest(folder) if (folder / _MANIFEST).exists() else None
    number = 1 + (before["number"] if before else 0)
    parts = folder / str(number)
    # What a save that failed has left.
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir()
    try:
        described = {name: _save_table(parts / f"{name}.npz", table) for name, table in tables.items()}
        dense = {
            "model": _dense(model),
            "optimizer": None if optimizer is None else optimizer.state_dict(),
            "user": user,
        }
        torch.save(dense, parts / "dense.pt")
        manifest = {"format": FORMAT, "number": number, "tables": described}
        temporary = folder / (_MANIFEST + ".new")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / _MANIFEST)
    except BaseException:
        shutil.rmtree(parts, ignore_errors=True)
        raise
    if before is not None:
        shutil.rmtree(folder / str(before["number"]), ignore_errors=True)


def read_table(table: Table) -> tuple[_Ids, _Values, _Values, int]:
    """Reads the rows that are kept of a table, by rising id: ids, values, states of their rule, and the steps of the table."""
    assert table.session is not None
    native, width = table.session.native, table.definition.width
    pages, steps, shard, after = [], 0, 0, None
    while True:
        ids, values, states, of_shard, after, shards = native.scan(table.number, shard, after)
        count = len(ids) // 8
        of_rows = np.frombuffer(states, np.float32).reshape(count, -1) if count else None
        pages.append((np.frombuffer(ids, np.int64), np.frombuffer(values, np.float32).reshape(count, width), of_rows))
        steps = max(steps, of_shard)
        if after is None:
            shard += 1
            if shard == shards:
                break
    filled = [page for page in pages if page[2] is not None]
    if not filled:
        none = np.empty((0, width), np.float32)
        return np.empty(0, np.int64), none, np.empty((0, 0), np.float32), steps
    if len(filled) == 1:
        return (*filled[0], steps)  # type: ignore[return-value]
    ids_of_all = np.concatenate([page[0] for page in filled])
    order = np.argsort(ids_of_all)
    values_of_all = np.concatenate([page[1] for page in filled])[order]
    states_of_all = np.concatenate([page[2] for page in filled if page[2] is not None])[order]
    return ids_of_all[order], values_of_all, states_of_all, steps


def _save_table(path: Path, table: Table) -> dict[str, Any]:
    ids, values, states, steps = read_table(table)
    with open(path, "wb") as file:
        np.savez(file, ids=ids, values=values, states=states)
        file.flush()
        os.fsync(file.fileno())
    definition = table.definition
    initial = definition.initial
    assert table.session is not None
    return {
        "rows": definition.rows,
        "width": definition.width,
        "hashed": definition.hashed,
        "initial": [initial.kind, initial.value],
        "eviction": definition.eviction.kind if definition.eviction is not None else None,
        "seed": table.session.seed,
        "optimizer": table.rule.optimizer if table.rule else None,
        "steps": steps,
        "kept": len(ids),
    }


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Error(f"{folder} has no checkpoint: {_MANIFEST} is not there") from None
    except ValueError as error:
        raise Error(f"{folder / _MANIFEST} is no manifest: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Error(f"{folder / _MANIFEST} is not of format {FORMAT}")
    return manifest


def load(
    path: str | os.PathLike[str], model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> dict[str, Any]:
    """Loads what `save` has saved, and returns the user's part. Nothing changes unless all of it fits.

    In a cluster every worker calls it, with a path that each of them can read; that of rank 0 sets the rows.
    """
    folder = Path(path)
    manifest = _read_manifest(folder)
    session = current()
    tables = _tables(model, session)
    described = manifest["tables"]
    if tables.keys() != described.keys():
        raise Mismatch(f"{folder} has the tables {_list(described)}, the model has {_list(tables)}")
    for name, table in tables.items():
        _check_table(folder, table, described[name])
    parts = folder / str(manifest["number"])
    dense = torch.load(parts / "dense.pt", weights_only=True)
    _check_dense(folder, model, dense["model"])
    with torch.no_grad():
        for name, value in _dense(model).items():
            value.copy_(dense["model"][name])
    if optimizer is not None and dense["optimizer"] is not None:
        optimizer.load_state_dict(dense["optimizer"])
    session.begin()
    session.barrier()
    if session.rank == 0:
        for name, table in tables.items():
            _load_table(parts / f"{name}.npz", table, described[name])
    session.barrier()
    user: dict[str, Any] = dense["user"]
    return user


def _list(names: Any) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names)) or "none"


def _check_table(folder: Path, table: Table, described: dict[str, Any]) -> None:
    definition = table.definition
    initial = [definition.initial.kind, definition.initial.value]
    mine = {
        "rows": definition.rows,
        "width": definition.width,
        "hashed": definition.hashed,
        "initial": initial,
        "eviction": definition.eviction.kind if definition.eviction is not None else None,
    }
    for key, value in mine.items():
        if described.get(key) != value:
            raise Mismatch(f'{folder}: table "{table.label}" has {key} = {described.get(key)}, the model has {value}')
    assert table.session is not None
    if described["seed"] != table.session.seed and definition.initial.kind != "zero":
        raise Mismatch(
            f"{folder}: rows that were never updated follow from the seed {described['seed']}, the session has "
            f"{table.session.seed}: start it with init(seed={described['seed']})"
        )
    rule = table.rule.optimizer if table.rule else None
    if rule is not None and described["optimizer"] not in (None, rule):
        raise Mismatch(f'{folder}: table "{table.label}" was trained with {described["optimizer"]}, the model has {rule}')


def _check_dense(folder: Path, model: torch.nn.Module, saved: dict[str, torch.Tensor]) -> None:
    mine = _dense(model)
    if mine.keys() != saved.keys():
        other = sorted(mine.keys() ^ saved.keys())[0]
        raise Mismatch(f"{folder}: {other} is in the {'model' if other in mine else 'checkpoint'} alone")
    for name, value in mine.items():
        if value.shape != saved[name].shape:
            raise Mismatch(f"{folder}: {name} has the shape {tuple(saved[name].shape)}, the model has {tuple(value.shape)}")


def _load_table(path: Path, table: Table, described: dict[str, Any]) -> None:
    session = table.session
    assert session is not None
    with np.load(path, allow_pickle=False) as arrays:
        ids, values, states = arrays["ids"], arrays["values"], arrays["states"]
    keeps = table.rule is not None and described["optimizer"] is not None
    session.native.reset(table.number, described["steps"] if keeps else 0)
    session.assign(table, ids, values, np.ascontiguousarray(states) if keeps else None)
