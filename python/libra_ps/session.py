"""The session of this process: its tables, and where their rows are."""

from __future__ import annotations

import atexit
import dataclasses
import itertools
import logging
import os
import signal
import sys
import threading
import weakref

from . import _native, errors, exits, launch
from .errors import Error, Mismatch
from .definitions import Definition, Initial, Rule, check_name, integer, number

# Typing is for type checkers alone: its import would be a quarter of that of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, NoReturn

    import numpy as np
    import numpy.typing as npt

    from .ahead import ReadAhead
    from .data import Chunks
    from .dense import DenseGroup

logger = logging.getLogger("libra_ps")
logger.addHandler(logging.NullHandler())

MODES = ("async", "ssp", "sync")

#: Bytes of rows that are set at once.
WRITE_BYTES = 16 << 20

#: Seconds that a worker that cannot go on takes to leave the others.
EXIT_TIMEOUT = 5.0

#: Options of `init` that are not there yet, and the way around.
_ABSENT = {
    "state": "libra_ps.save and libra_ps.load keep the state of a job, and servers that are processes do with --log --state-dir",
    "gradients": 'mode="sync" averages the gradients of workers, the others take each push as a step of its own',
    "patience": "timeout= is the time for the others to come",
    "hot": "plan= names a file of hot rows, which a process alone writes with LIBRA_PROFILE",
    "progress": "tell it with libra_ps.note",
}


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
        #: Its optimizer has parameters that are no handles.
        self.has_dense = False

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
        self.definition = dataclasses.replace(self.definition, initial=initial)

    def set_rule(self, rule: Rule, keeps_state: bool = False) -> None:
        """Sets the update rule."""
        session = self.open()
        if self.rule == rule:
            return
        numbers = {**rule.numbers, **self.definition.numbers}
        session.native.set_rule(self.number, rule.optimizer, rule.decay, numbers, keeps_state)
        self.rule = rule

    def __deepcopy__(self, memo: dict[int, Any]) -> Table:
        raise Error("a table cannot be copied: its rows are not in this object")

    def __reduce__(self) -> Any:
        raise Error("a table cannot be pickled: its rows are not in this object. Save with libra_ps.save or state_dict()")


class Session:
    """Tables and their rows. One for each process."""

    def __init__(
        self,
        native: _native.Session,
        mode: str,
        seed: int,
        found: launch.Processes,
        servers: int,
        timeout: float,
        switches: int = 0,
        plan: str | None = None,
    ) -> None:
        self.native = native
        self.mode = mode
        self.seed = seed
        self.processes = found
        self.workers = found.workers
        self.rank = found.rank
        self.servers = servers
        self.switches = switches
        #: Text of the plan of hot rows.
        self.plan = plan
        #: File that the plan of this run is written to.
        self.profile_path: Path | None = None
        self.timeout = timeout
        self.is_cluster = found.controller is not None or found.workers > 1
        #: The cluster has begun, with the tables of that moment.
        self.has_begun = not self.is_cluster
        #: How many sessions this process had before.
        self.number = next(_numbers)
        #: Of synchronous workers the gradients are averaged, as those of DistributedDataParallel are.
        self.factor = 1.0 / found.workers if mode == "sync" else 1.0
        self.tables: dict[str, Table] = {}
        #: Tables with names, of modules that exist; not all are in use.
        self.declared: weakref.WeakValueDictionary[str, Table] = weakref.WeakValueDictionary()
        #: Dense parameters that are kept on the servers.
        self.dense: list[DenseGroup] = []
        #: Takes note of the look-ups of a forward pass, in a cluster.
        self.ahead: ReadAhead | None = None
        #: Rows that were set before the cluster has begun, and that rank 0 sets then.
        self._pending: list[tuple[Table, npt.NDArray[np.int64], npt.NDArray[np.float32]]] = []
        self._has_pending = False
        #: Rows that were set before, and that this process did not keep.
        self._has_dropped = False
        #: The samples of the job, if they are dealt in chunks.
        self._chunks: Chunks | None = None
        #: Phase of the job, if they are: 0 sets rows, n is epoch n.
        self.phase = 0
        #: Pushes of this process.
        self.pushes = 0
        #: Samples that this process will train on, as it said before the cluster has begun.
        self._planned = 0
        self.steps = 0
        self.is_dirty = False
        self.is_closed = False
        self._unnamed = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def description(self) -> str:
        """Says where rows are."""
        if not self.is_cluster:
            return f"rows are in this process, mode {self.mode}"
        gradients = "averaged over workers" if self.factor != 1.0 else "of each worker a step of their own"
        hosted = f"{self.servers} servers and {self.switches} switches in the process of rank 0"
        where = self.processes.controller or hosted
        return f"rank {self.rank} of {self.workers} workers, {where}, mode {self.mode}, gradients {gradients}"

    def __repr__(self) -> str:
        return f"<libra_ps.Session: {self.description}>"

    def begin(self) -> None:
        """Starts or joins the cluster: at the first look-up, when all tables are known."""
        if not self.has_begun:
            with self._lock:
                if not self.has_begun:
                    barrier = launch.begin(self)
                    self._drain_when_terminated()
                    # A worker that comes late finds the rows that the others have.
                    if self._chunks is not None:
                        self.phase = barrier
                        self._do_first_phase()
                    elif self._has_pending and barrier == 0:
                        self._assign_pending()
                        self.native.barrier()
                    self._pending.clear()
                    if self._planned:
                        self.native.note_planned(self._planned)
                    self.has_begun = True

    def _assign_pending(self) -> None:
        for table, ids, values in self._pending:
            self.assign(table, ids, values)

    def _do_first_phase(self) -> None:
        """Sets rows, if this worker gets the chunk that is to, and waits until they are set."""
        while self.phase == 0:
            chunk = self.next_chunk(has_begun=False)
            if chunk is not None:
                self._assign_pending()
                self.native.flush()
                self.native.finish_chunk(chunk, "{}")

    def deal(self, chunks: Chunks, description: str) -> None:
        """Lets the controller deal the samples of the job in chunks."""
        if self._chunks is not None:
            raise Error(f"the samples of this session are defined: {self._chunks.description}")
        if self.is_cluster:
            if self._has_dropped:
                raise Error("define Chunks before rows are set: any worker may be the one that sets them")
            self.native.deal_samples(description, chunks.epochs, chunks.count)
        self._chunks = chunks

    def next_chunk(self, has_begun: bool) -> int | None:
        """Waits for the next chunk. None: the phase is over, or none is at hand and one that was begun is to be finished."""
        phase, chunk = self.native.next_chunk()
        if chunk is None and phase == self.phase and not has_begun:
            # Fails once this worker was asked to end.
            self.native.flush()
        self.phase = phase
        return chunk

    def _drain_when_terminated(self) -> None:
        """Lets SIGTERM ask this worker to leave after its step, unless the program has a handler of its own."""
        hosts_the_servers = self.processes.controller is None and self.rank == 0
        in_main_thread = threading.current_thread() is threading.main_thread()
        if hosts_the_servers or not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return

        def drain(_signal: int, _frame: Any) -> None:
            # A second one ends the process at once.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self.native.drain()

        signal.signal(signal.SIGTERM, drain)

    def write_rows(self, table: Table, ids: npt.NDArray[np.int64], values: npt.NDArray[np.float32]) -> None:
        """Sets rows. Of several workers that of rank 0 does, and all must call it."""
        if self.has_begun:
            if self.rank == 0:
                self.assign(table, ids, values)
            return
        self._has_pending = True
        if self.rank != 0 and self._chunks is None:
            self._has_dropped = True
        else:
            self._pending.append((table, ids.copy(), values.copy()))

    def assign(
        self,
        table: Table,
        ids: npt.NDArray[np.int64],
        values: npt.NDArray[np.float32],
        states: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Sets rows, with the states of rows that never had a gradient unless they are given."""
        import numpy as np

        ids, values = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(values, np.float32)
        words = 0 if states is None else states.shape[1]
        step = max(1, WRITE_BYTES // (4 * (values.shape[1] + words)))
        for begin in range(0, len(ids), step):
            some, of_some = ids[begin : begin + step], values[begin : begin + step]
            address = states[begin : begin + step].ctypes.data if states is not None and words else 0
            self.native.write(table.number, some.ctypes.data, len(some), of_some.ctypes.data, address, words)

    def refresh(self) -> None:
        """Reads the dense parameters that are kept on the servers, if steps have changed them."""
        if any(group.is_spent for group in self.dense):
            self.begin()
            self.read_ahead([])

    def read_ahead(self, ids: list[tuple[int, int, int, bool, int | None]]) -> None:
        """Reads rows that a step will look up, and the dense parameters that steps have changed."""
        spent = [group for group in self.dense if group.is_spent]
        if ids or spent:
            self.native.read_ahead(ids, [group.place for group in spent])
        for group in spent:
            group.take()

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
            if definition.frozen:
                import numpy as np

                frozen = np.fromiter(definition.frozen, np.int64)
                self.native.freeze(table.number, frozen.ctypes.data, len(frozen))
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
        if self.has_begun:
            self.native.flush()
        self.is_dirty = False

    def barrier(self) -> None:
        """Waits until every worker has come here."""
        if self.is_cluster and self._chunks is not None:
            raise errors.NotSupported(
                "workers whose samples are dealt in chunks wait for each other at the end of an epoch alone, as others may come and go; "
                "the controller makes their checkpoints: libra job checkpoint, or libra controller --checkpoint-every"
            )
        if self.has_begun:
            self.native.barrier()
        self.is_dirty = False

    def note(self, samples: int, loss: float | None, planned: int) -> None:
        """Tells those who watch the job of the progress of this process."""
        if samples < 0 or planned < 0 or (samples > 0) != (loss is not None):
            raise ValueError(f"samples = {samples}, loss = {loss}, planned = {planned}: samples have a loss, and are not below 0")
        if planned and self.has_begun:
            self.native.note_planned(planned)
        elif planned:
            self._planned += planned
        if loss is not None:
            self.begin()
            self.native.note_trained(samples, float(loss))

    def push(self, tables: list[int], factor: float) -> None:
        """Pushes the gradients of tables, and ends the step."""
        self.begin()
        self.is_dirty = True
        self.native.push(tables, factor * self.factor)
        self.pushes += 1
        self.steps += 1

    def shutdown(self, is_done: bool = True) -> None:
        """Ends the session. Later uses of its tables raise."""
        # Not after an exception.
        has_succeeded = is_done
        if not self.is_closed:
            self.is_closed = True
            if self.profile_path is not None:
                self._write_plan(self.profile_path)
            if is_done and self.is_cluster and self.has_begun and self._chunks is not None:
                is_done = self.phase > self._chunks.epochs
                if not is_done:
                    logger.warning("this worker leaves before the end of its epochs: its chunks are dealt to others")
            packets = self.native.shut_down(is_done, self.timeout if has_succeeded else EXIT_TIMEOUT)
            if self.switches and self.rank == 0 and self.has_begun:
                logger.info("packets added by switches: %d", packets)

    def _write_plan(self, path: Path) -> None:
        plan = self.native.finish_profile(self.seed)
        if plan is None:
            logger.warning("LIBRA_PROFILE: nothing was pushed, %s is not written", path)
        else:
            path.write_text(plan, encoding="utf-8")
            logger.info("the plan of this run is %s", path)


_numbers = itertools.count()
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
    timeout: float = 60.0,
    log: bool = False,
    **absent: NoReturn,
) -> Session:
    """Starts the session of this process, or returns the one that it has.

    In a process alone, rows are in the memory of this process: `mode` is then "sync", where a step reads all
    steps before it, or "async", where up to two updates go on beside the next step.

    With `WORLD_SIZE` above 1, as torchrun sets it, the processes are the workers of a cluster, and the process of rank 0 has
    its controller and so many `servers`. With `LIBRA_CONTROLLER=host:port` they join a cluster that runs. It begins at the
    first look-up, for which the others have `timeout` seconds. So many `switches` aggregate the hot rows of a `plan`, a file
    that a process alone writes at its end with `LIBRA_PROFILE=plan.toml`. `mode` is "async" by default, "ssp", where a step may miss
    the last `staleness` steps of others, or "sync".
    """
    global _current
    for name in absent:
        if name in _ABSENT:
            raise errors.NotSupported(f"init({name}=..) is not there yet: {_ABSENT[name]}")
        raise TypeError(f"init() got an unexpected keyword argument {name!r}")
    mode = mode or os.environ.get("LIBRA_MODE")
    if mode is not None and mode not in MODES:
        raise ValueError(f'mode = "{mode}" must be one of {", ".join(MODES)}')
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise ValueError(f"seed = {seed!r} must be a number from 0 to 2^64 - 1")
    servers, switches = integer(servers, "servers"), integer(switches, "switches")
    timeout = number(timeout, "timeout")
    if not 0 <= timeout < 1e9:
        raise ValueError(f"timeout = {timeout:g} must be a number of seconds, at least 0")
    if integer(staleness, "staleness") < 1:
        raise ValueError(f'staleness = {staleness} must be at least 1; mode "sync" is staleness 0')
    if log and not any(isinstance(handler, logging.StreamHandler) for handler in logger.handlers):
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
    if _current is not None:
        if mode not in (None, _current.mode) or seed not in (0, _current.seed):
            raise Mismatch(f"the session runs with mode {_current.mode} and seed {_current.seed}: call shutdown() first")
        return _current
    _current = _start(mode, staleness, servers, switches, plan, seed, timeout)
    if _current.is_cluster:
        exits.chain_hook(lambda: _current is not None)
    logger.info("%s", _current.description)
    return _current


def _start(
    mode: str | None, staleness: int, servers: int, switches: int, plan: str | None, seed: int, timeout: float
) -> Session:
    launch.hide_token()
    servers = _option("LIBRA_SERVERS", servers, 1)
    switches = _option("LIBRA_SWITCHES", switches, 0)
    plan = plan or os.environ.get("LIBRA_PLAN")
    if not 1 <= servers <= 1024:
        raise ValueError(f"servers = {servers} must be from 1 to 1024")
    if not 0 <= switches <= 1024:
        raise ValueError(f"switches = {switches} must be from 0 to 1024")
    found = launch.processes()
    if found.workers > 1 or found.controller is not None:
        if switches and plan is None:
            raise ValueError(
                f"switches = {switches}: a switch needs the hot rows of a plan. Run one process with LIBRA_PROFILE=plan.toml, "
                "then set plan= or LIBRA_PLAN"
            )
        mode = mode or "async"
        text = None if plan is None else _read_plan(plan)
        native = _native.Session.cluster(mode, staleness, seed, _loss())
        return Session(native, mode, seed, found, servers, timeout, switches, text)
    if servers != 1 or switches or plan:
        raise errors.NotSupported("servers, switches and plan are for several workers: a process alone keeps the rows itself")
    mode = mode or "sync"
    if mode == "ssp":
        raise ValueError('mode "ssp" is for several workers: alone, take "sync" or "async"')
    session = Session(_native.Session.alone(seed, mode == "sync"), mode, seed, found, 0, timeout)
    profile = os.environ.get("LIBRA_PROFILE")
    if profile:
        # Imported when it is needed: most programs never get here.
        from pathlib import Path

        session.profile_path = Path(profile)
        session.profile_path.touch()
        session.native.start_profile()
    return session


def _option(name: str, value: int, default: int) -> int:
    """Returns an option that is also a variable of the environment."""
    text = os.environ.get(name)
    if value != default or text is None:
        return value
    if not text.isdigit():
        raise ValueError(f"{name} = {text!r} must be a number")
    return int(text)


def _loss() -> float:
    """The share of datagrams that are lost on purpose, for tests."""
    text = os.environ.get("LIBRA_LOSS", "0")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"LIBRA_LOSS = {text!r} must be a number") from None


def _read_plan(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"plan = {path}: {error.strerror or error}") from None


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
    """Waits until every worker has come here, and all pushes can be read."""
    current().barrier()


def end_epoch() -> None:
    """Ends a pass over the data: flush and barrier."""
    barrier()


def note(*, samples: int = 0, loss: float | None = None, planned: int = 0) -> None:
    """Tells those who watch the job (`libra top`, Prometheus, trackers) of the progress of this process. It waits for nothing.

    Call it after a step with the `samples` that this process has trained on since the last call, and their mean `loss`. Before the
    first step, `planned` is the number of samples that this process will train on. A `loss` that is a tensor is read: one on a GPU
    is waited for, so note many steps at once then. The loss that is shown is the mean since the last `end_epoch` or `barrier`.
    In a process alone it does nothing.
    """
    current().note(samples, loss, planned)


def stats() -> dict[str, Any]:
    """Returns counts since the start. Of a process alone they have the `rows` that each table keeps, after all pushes."""
    session = current()
    names = ("ids", "rows_pulled", "rows_pushed", "pushes")
    tables = {name: dict(zip(names, counts)) for name, counts in session.native.counts().items()}
    for name, (rows, dropped, evicted) in (session.native.kept() or {}).items():
        tables[name]["rows"] = rows
        definition = session.tables[name].definition
        if definition.admission is not None:
            tables[name]["gradients_not_admitted"] = dropped
        if definition.eviction is not None:
            tables[name]["rows_evicted"] = evicted
    return {"mode": session.mode, "workers": session.workers, "steps": session.steps, "tables": tables}


def _at_exit() -> None:
    global _current
    session, _current = _current, None
    if session is None:
        return
    has_failed = getattr(sys, "last_value", None) is not None
    try:
        # After an exception, this worker leaves, and the others go on.
        session.shutdown(is_done=not has_failed)
    except Error as error:
        logger.warning("shutdown: %s", error)
        if not has_failed and not isinstance(error, errors.Forked):
            exits.end_without_pushes(error, has_lost=session.is_dirty)


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_native.mark_forked)
