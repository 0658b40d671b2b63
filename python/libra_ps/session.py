"""The session of this process: its tables, and where their rows are."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
from typing import Any

from . import _native
from .errors import Error, Mismatch
from .tables import Definition, Initial, Rule, check_name

logger = logging.getLogger("libra_ps")
logger.addHandler(logging.NullHandler())

MODES = ("async", "ssp", "sync")


class Table:
    """A table of the session. Modules of the same name share one."""

    def __init__(self, definition: Definition, name: str | None) -> None:
        self.definition = definition
        self.name = name
        self.session: Session | None = None
        #: Number in the session, from its first use on.
        self.number = -1
        self.rule: Rule | None = None
        #: The parameter that stands for the rows in torch.
        self.handle: Any = None
        #: Reference to the binding of the optimizer that has it.
        self.binding: Any = None
        #: A backward pass was committed since the last step.
        self.is_committed = False
        self.padding_row: Any = None
        #: The handle is averaged over processes by DistributedDataParallel.
        self.in_ddp = False

    @property
    def label(self) -> str:
        return self.name or "without a name"

    def open(self) -> Session:
        """Returns the session, in which the table is from now on."""
        session = current()
        if self.session is not session:
            if self.session is not None:
                raise Error(
                    f'table "{self.label}" is of a session that was shut down: build the model again after init()'
                )
            session.add(self)
        return session

    def set_initial(self, initial: Initial) -> None:
        """Sets the initial values, which nothing has read yet."""
        if self.session is not None:
            raise Error(f'table "{self.label}" is in use: its initial values can only be set before the first look-up')
        definition = self.definition
        self.definition = Definition(definition.rows, definition.width, definition.hashed, initial)

    def set_rule(self, rule: Rule, keeps_state: bool = False) -> None:
        """Sets the update rule."""
        session = self.open()
        if self.rule == rule:
            return
        session.native.set_rule(self.number, rule.optimizer, rule.decay, dict(rule.numbers), keeps_state)
        self.rule = rule

    def __deepcopy__(self, memo: dict[int, Any]) -> Table:
        raise Error("a table cannot be copied: its rows are not in this object")

    def __reduce__(self) -> Any:
        raise Error("a table cannot be pickled: its rows are not in this object. Save with libra_ps.save or state_dict()")


class Session:
    """Tables and their rows. One for each process."""

    def __init__(self, native: _native.Session, mode: str, seed: int, description: str) -> None:
        self.native = native
        self.mode = mode
        self.seed = seed
        self.description = description
        self.workers = 1
        self.rank = 0
        self.tables: dict[str, Table] = {}
        self.steps = 0
        self.is_dirty = False
        self.is_closed = False
        self._unnamed = itertools.count(1)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<libra_ps.Session: {self.description}>"

    def find(self, name: str, definition: Definition) -> Table | None:
        """Returns the table of this name, if there is one; it must have this definition."""
        table = self.tables.get(name)
        if table is not None:
            difference = table.definition.difference(definition)
            if difference:
                raise Mismatch(f'there is a table "{name}" of another definition: {difference}')
        return table

    def add(self, table: Table) -> None:
        """Takes in a table that is not in use yet."""
        with self._lock:
            if table.session is self:
                return
            if table.name is None:
                table.name = f"table-{next(self._unnamed)}"
            if self.tables.get(table.name, table) is not table:
                raise Mismatch(f'two tables are named "{table.name}"')
            definition = table.definition
            table.number = self.native.add_table(
                table.name,
                definition.rows,
                definition.hashed,
                definition.width,
                definition.initial.kind,
                definition.initial.value,
            )
            self.tables[table.name] = table
            table.session = self
            if table.padding_row is not None:
                self.native.set_padding_row(table.number, table.padding_row.data_ptr())

    def rename(self, table: Table, name: str) -> None:
        """Gives a table another name."""
        check_name(name)
        if self.tables.get(name, table) is not table:
            raise ValueError(f'two tables are named "{name}": give one of them another name=')
        if table.session is self:
            assert table.name is not None
            del self.tables[table.name]
            self.tables[name] = table
            self.native.rename(table.number, name)
        table.name = name

    def flush(self) -> None:
        """Waits until all pushes of this process can be read."""
        self.native.flush()
        self.is_dirty = False

    def push(self, tables: list[int], factor: float) -> None:
        """Pushes the gradients of tables, and ends the step."""
        self.is_dirty = True
        self.native.push(tables, factor)
        self.steps += 1

    def shutdown(self) -> None:
        """Ends the session. Later uses of its tables raise."""
        if not self.is_closed:
            self.is_closed = True
            self.native.shut_down()


_current: Session | None = None


def current() -> Session:
    """Returns the session of this process."""
    if _current is None:
        raise Error("there is no session: call libra_ps.init() first")
    return _current


def init(
    *,
    mode: str | None = None,
    staleness: int = 3,
    servers: int = 1,
    switches: int = 0,
    plan: str | None = None,
    seed: int = 0,
    log: bool = False,
) -> Session:
    """Starts the session of this process, or returns the one that it has.

    In a process alone, rows are in the memory of this process: `mode` is then "sync", where a step reads all
    steps before it, or "async", where up to two updates go on beside the next step.
    """
    global _current
    mode = mode or os.environ.get("LIBRA_MODE")
    if mode is not None and mode not in MODES:
        raise ValueError(f'mode = "{mode}" must be one of {", ".join(MODES)}')
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise ValueError(f"seed = {seed!r} must be a number from 0 to 2^64 - 1")
    if staleness < 1:
        raise ValueError(f'staleness = {staleness} must be at least 1; mode "sync" is staleness 0')
    if log and not any(isinstance(handler, logging.StreamHandler) for handler in logger.handlers):
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
    if _current is not None:
        if mode not in (None, _current.mode) or seed not in (0, _current.seed):
            raise Mismatch(f"the session runs with mode {_current.mode} and seed {_current.seed}: call shutdown() first")
        return _current
    _current = _start(mode, staleness, servers, switches, plan, seed)
    logger.info("%s", _current.description)
    return _current


def _start(
    mode: str | None, staleness: int, servers: int, switches: int, plan: str | None, seed: int
) -> Session:
    from . import errors

    if os.environ.get("LIBRA_CONTROLLER"):
        raise errors.NotSupported("LIBRA_CONTROLLER: joining a cluster that runs is not there yet; unset it to train alone")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise errors.NotSupported("WORLD_SIZE is above 1: several processes are not there yet; start one without torchrun")
    for name, value, default in (("servers", servers, 1), ("switches", switches, 0), ("plan", plan, None)):
        if value != default:
            raise errors.NotSupported(f"{name} = {value}: a cluster is not there yet, this process keeps the rows itself")
    mode = mode or "sync"
    if mode == "ssp":
        raise ValueError('mode "ssp" is for several workers: alone, take "sync" or "async"')
    native = _native.Session.alone(seed, mode == "sync")
    return Session(native, mode, seed, f"rows are in this process, mode {mode}")


def shutdown() -> None:
    """Ends the session of this process, if there is one. Another may be started afterwards."""
    global _current
    session, _current = _current, None
    if session is not None:
        session.shutdown()


def flush() -> None:
    """Waits until all pushes of this process can be read."""
    current().flush()


def barrier() -> None:
    """Waits until every worker has come here."""
    current().flush()


def end_epoch() -> None:
    """Ends a pass over the data: flush and barrier."""
    barrier()


def stats() -> dict[str, Any]:
    """Returns counts since the start."""
    session = current()
    names = ("ids", "rows_pulled", "rows_pushed", "pushes")
    tables = {name: dict(zip(names, counts)) for name, counts in session.native.counts().items()}
    return {"mode": session.mode, "workers": session.workers, "steps": session.steps, "tables": tables}


def _at_exit() -> None:
    try:
        shutdown()
    except Error as error:
        logger.warning("shutdown: %s", error)


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_native.mark_forked)
