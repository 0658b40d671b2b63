"""Rows as arrays, without torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Error
from .session import Session, Table, current
from .definitions import Admission, Definition, Eviction, Initial, Normal, Rule, check_name


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    if getattr(values, "requires_grad", False):
        values = values.detach()
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        values = np.from_dlpack(values)
    array = np.asarray(values)
    if array.dtype == object:
        raise TypeError(f"{name} must be an array of numbers")
    return array


def ids_of(values: Any, name: str = "keys") -> npt.NDArray[np.int64]:
    """Returns ids as the native module takes them."""
    array = _array(values, name)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind != "i":
        hint = ": convert them with astype(numpy.int64)" if array.dtype.kind == "u" else ""
        raise TypeError(f"{name} must be signed integers, not {array.dtype}{hint}")
    return np.ascontiguousarray(array, dtype=np.int64).reshape(-1)


class Client:
    """Pulls and pushes of rows for any training loop. The session is that of `init`."""

    def __init__(self, session: Session | None = None) -> None:
        self._session = session or current()

    def add_table(
        self,
        name: str,
        rows: int | None,
        width: int,
        rule: Rule,
        *,
        init: Initial = Normal(1.0),
        hash: bool = False,
        admission: Admission | None = None,
        eviction: Eviction | None = None,
    ) -> None:
        """Defines a table. The same definition of a table that exists changes nothing."""
        definition = Definition(rows, width, hash, init, admission=admission, eviction=eviction)
        table = self._session.find(check_name(name), definition)
        if table is None:
            table = Table(definition, name)
            self._session.add(table)
        table.set_rule(rule)

    def _table(self, name: str) -> Table:
        table = self._session.tables.get(name)
        if table is None:
            known = ", ".join(f'"{name}"' for name in self._session.tables) or "none"
            raise Error(f'there is no table "{name}": the session has {known}')
        return table

    def pull(self, table: str, keys: Any) -> npt.NDArray[np.float32]:
        """Returns the rows of keys, one for each key."""
        found = self._table(table)
        ids = ids_of(keys)
        self._session.begin()
        rows = np.empty((ids.size, found.definition.width), np.float32)
        self._session.native.read(found.number, ids.ctypes.data, ids.size, rows.ctypes.data)
        return rows

    def push(self, table: str, keys: Any, gradients: Any) -> None:
        """Adds gradients to rows: one update for each row, of the sum if a key comes more than once."""
        found = self._table(table)
        if found.rule is None:
            raise Error(f'table "{table}" has no rule: define it with add_table, or wrap its optimizer')
        ids = ids_of(keys)
        width = found.definition.width
        array = _array(gradients, "gradients")
        if array.dtype.kind != "f":
            raise TypeError(f"gradients must be floats, not {array.dtype}")
        if array.shape != (ids.size, width):
            raise ValueError(f"gradients have the shape {array.shape}, {ids.size} keys of width {width} need {(ids.size, width)}")
        rows = np.ascontiguousarray(array, np.float32)
        self._session.begin()
        self._session.is_dirty = True
        self._session.native.push_rows(found.number, ids.ctypes.data, ids.size, rows.ctypes.data)
        self._session.pushes += 1

    def flush(self) -> None:
        """Waits until all pushes of this process can be read."""
        self._session.flush()

    def barrier(self) -> None:
        """Waits until every worker has come here."""
        self._session.barrier()

    def tick(self) -> None:
        """Ends a step: in the modes sync and ssp others wait for it."""
        self._session.begin()
        self._session.native.tick()
        self._session.steps += 1
