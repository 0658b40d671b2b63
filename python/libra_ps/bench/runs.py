"""What each subcommand runs."""

from __future__ import annotations

import inspect
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import nn as libra_nn
from .. import optim, session
from .measure import Report, Spread, System, beyond, in_turns, over
from .systems import (
    BATCHES,
    FLOOR,
    Bags,
    Batch,
    Constant,
    NeuMF,
    Product,
    Zipf,
    dense_adam,
    libra_adam,
    libra_embedding,
    neumf_batches,
    on_libra,
    sessions,
    sparse_adam,
    sparse_embedding,
    train,
    zipf_batches,
)

MODES = ("sync", "async")


@dataclass(frozen=True)
class Options:
    """Options of all subcommands."""

    turns: int = 7
    #: Of one system in one turn.
    seconds: float = 1.0
    #: Divides sizes of tables and batches, and numbers of steps, for tests.
    divide: int = 1
    #: Dense parameters of `processes`: "ddp" or "server".
    dense: str = "ddp"
    #: Whether `processes` has sparse gradients of torch. Torch 2.15 corrupts its heap now and then when it sums them over gloo.
    sparse: bool = True

    def size(self, size: int) -> int:
        return max(size // self.divide, 2)


def _print_steps(report: Report, title: str, times: dict[str, list[float]], samples: int, floor: str | None) -> None:
    rows = []
    for name, seconds in times.items():
        milliseconds = Spread.of(1e3 * second for second in seconds)
        row = [name, milliseconds.text(3), f"{samples / milliseconds.median:,.0f}"]
        if floor is not None:
            row.append("" if name == floor else Spread.of(1e3 * value for value in beyond(times, name, floor)).text(3))
        rows.append(row)
    header = ["system", "ms a step", "k samples/s"] + ([] if floor is None else ["E, ms"])
    report.table(title, header, rows, seconds_by_turn=times, samples=samples)


def neumf(options: Options, report: Report) -> None:
    """NeuMF of the shape of MovieLens 1M."""
    for size in (options.size(size) for size in (256, 1024, 4096)):
        batches = neumf_batches(size)
        dense, sparse = NeuMF(nn.Embedding), NeuMF(sparse_embedding)
        constant = NeuMF(lambda _, width: Constant(size, width))
        systems = [
            train(FLOOR, constant, dense_adam(constant), batches),
            train("torch dense", dense, dense_adam(dense), batches),
            train("torch sparse", sparse, sparse_adam(sparse), batches),
        ]
        with sessions() as start:
            for mode in MODES:
                of = start(mode)
                systems.append(libra_adam(f"libra {mode}", NeuMF, batches, of))
            times = in_turns(systems, options.turns, options.seconds, BATCHES)
        _print_steps(report, f"NeuMF, batch {size:,}, {torch.get_num_threads()} threads", times, size, FLOOR)
        sparse_beyond = beyond(times, "torch sparse", FLOOR)
        for mode, share in zip(MODES, (1 / 2, 1 / 3)):
            name = f"libra {mode}"
            is_1024 = size == options.size(1024)
            report.goal(f"{name} / torch sparse, samples/s", over(times["torch sparse"], times[name]), 1.3 if is_1024 else 1, True)
            report.goal(f"{name} / torch dense, samples/s", over(times["torch dense"], times[name]), 1.2 if is_1024 else 1, True)
            report.goal(f"E of {name} / torch sparse", over(beyond(times, name, FLOOR), sparse_beyond), round(share, 3), False)


def tables(options: Options, report: Report) -> None:
    """Two tables of 1 M rows of 16 values, beside dense Adam."""
    rows, size = options.size(1_000_000), options.size(1024)
    batches = zipf_batches(2, rows, (size,), BATCHES)
    dense, sparse = Product(nn.Embedding, rows, 16), Product(sparse_embedding, rows, 16)
    systems = [
        train("torch dense", dense, dense_adam(dense), batches),
        train("torch sparse", sparse, sparse_adam(sparse), batches),
    ]
    with sessions() as start:
        for mode in MODES:
            of = start(mode)
            systems.append(libra_adam(f"libra {mode}", lambda embedding: Product(embedding, rows, 16), batches, of))
        times = in_turns(systems, options.turns, options.seconds, 3 if options.divide == 1 else 1)
    _print_steps(report, f"2 tables of {rows:,} x 16, batch {size:,}", times, size, None)
    for mode in MODES:
        report.goal(f"torch dense / libra {mode}", over(times["torch dense"], times[f"libra {mode}"]), 20, True, 1)


def bags(options: Options, report: Report) -> None:
    """26 bags of 100 k rows of 16 values, with Adagrad."""
    features, width, rows, size = 26, 16, options.size(100_000), options.size(2048)

    def adagrad(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(model.parameters(), lr=0.01)

    for ids in (1, 20):
        batches: list[Batch] = zipf_batches(features, rows, (size, ids), 16)
        constant = Bags([Constant(size, width) for _ in range(features)], features, width)
        plain = Bags([nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for _ in range(features)], features, width)
        systems = [train(FLOOR, constant, [adagrad(constant)], batches), train("torch sparse", plain, [adagrad(plain)], batches)]
        with sessions() as start:
            for mode in MODES:
                of = start(mode)
                configs = [libra_nn.TableConfig(f"feature{index}", rows, width) for index in range(features)]
                model = Bags(libra_nn.EmbeddingBagCollection(configs), features, width)
                systems.append(on_libra(f"libra {mode}", model, adagrad(model), batches, of))
                of = start(mode)
                single: list[nn.Module] = [libra_nn.EmbeddingBag(rows, width, mode="sum") for _ in range(features)]
                model = Bags(single, features, width)
                systems.append(on_libra(f"libra {mode}, 26 modules", model, adagrad(model), batches, of))
            times = in_turns(systems, options.turns, options.seconds, len(batches))
        _print_steps(report, f"26 bags of {rows:,} x {width}, {ids} ids, batch {size:,}", times, size, FLOOR)
        sparse_beyond = beyond(times, "torch sparse", FLOOR)
        for mode, share in zip(MODES, (1 / 2, 1 / 3)):
            ratio = over(beyond(times, f"libra {mode}", FLOOR), sparse_beyond)
            report.goal(f"E of libra {mode} / torch sparse", ratio, round(share, 3), False)


def overhead(options: Options, report: Report) -> None:
    """Time around the kernels: 4 ids of a table of 100 rows of 8 values, and steps of SGD."""
    features, rows, width = 26, 100, 8
    ids = torch.tensor([3, 1, 4, 1])
    names = [f"feature{index}" for index in range(features)]
    of_one, of_many = torch.ones(4, width), torch.ones(1, features * width)
    bag_of_each = {name: ids.reshape(1, 4) for name in names}

    def sgd(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.01)

    plain = nn.Embedding(rows, width)
    many = nn.ModuleList(nn.Embedding(rows, width) for _ in range(features))
    with sessions() as start:
        start("async")
        one = libra_nn.Embedding(rows, width)
        collection = libra_nn.EmbeddingBagCollection(libra_nn.TableConfig(name, rows, width) for name in names)
        runs: dict[str, tuple[Callable[[], Tensor], Tensor, torch.optim.Optimizer]] = {
            "torch, 1 table": (lambda: plain(ids), of_one, sgd(plain)),
            "libra, 1 table": (lambda: one(ids), of_one, optim.wrap(sgd(one), one)),
            "torch, 26 tables": (lambda: torch.cat([module(ids[:1]) for module in many], 1), of_many, sgd(many)),
            "libra, 26 tables": (
                lambda: torch.cat(list(collection(bag_of_each).values()), 1), of_many, optim.wrap(sgd(collection), collection)
            ),
        }  # fmt: skip
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        medians: dict[str, list[float]] = {}
        for _ in range(options.turns):
            for name, run in runs.items():
                for part, lap in zip((name, f"{name}, step"), _laps(*run, options.seconds)):
                    medians.setdefault(part, []).append(lap)
        torch.set_num_threads(threads)
    spreads = {name: Spread.of(values) for name, values in medians.items()}
    rows_of = [[name, spread.text(1)] for name, spread in spreads.items()]
    report.table("Overhead, look-up and backward, 1 thread", ["", "us, median of each turn"], rows_of, microseconds=medians)
    report.goal("look-up and backward, us", spreads["libra, 1 table"].median, 60, False, 1)
    report.goal("look-up and backward of 26 tables, us", spreads["libra, 26 tables"].median, 200, False, 1)
    report.goal("step, us", spreads["libra, 1 table, step"].median, 60, False, 1)


def _laps(
    look_up: Callable[[], Tensor], gradient: Tensor, optimizer: torch.optim.Optimizer, seconds: float
) -> tuple[float, float]:
    """Returns median microseconds of a look-up with its backward pass, and of a step of the optimizer."""
    passes, steps = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        optimizer.zero_grad()
        begin = time.perf_counter_ns()
        torch.autograd.backward(look_up(), gradient)
        between = time.perf_counter_ns()
        optimizer.step()
        steps.append((time.perf_counter_ns() - between) / 1e3)
        passes.append((between - begin) / 1e3)
    return statistics.median(passes), statistics.median(steps)


def thread(options: Options, report: Report) -> None:
    """Pace of another Python thread while look-ups of large batches run."""
    rows, size = options.size(1_000_000), options.size(262_144)
    draw = Zipf(rows, 1.05, 1)
    batches = [draw.draw(size) for _ in range(4)]
    paces: dict[str, list[float]] = {}
    with sessions() as start, torch.no_grad():
        start("sync")
        ours = libra_nn.Embedding(rows, 16)
        ours.open()
        plain = nn.Embedding(rows, 16)

        def nothing(_: Tensor) -> Any:
            time.sleep(options.seconds / 4)

        beside: list[tuple[str, Callable[[Tensor], Any]]] = [
            ("nothing", nothing), ("torch look-ups", plain), ("libra look-ups", ours)
        ]  # fmt: skip
        for turn in range(options.turns):
            first = turn % len(beside)
            for name, run in (*beside[first:], *beside[:first]):
                paces.setdefault(name, []).append(_count_beside(run, batches, options.seconds))
    medians = {name: Spread.of(pace) for name, pace in paces.items()}
    table = [[f"beside {name}", spread.text(2)] for name, spread in medians.items()]
    title = f"A thread that counts, M counts/s, beside look-ups of {size:,} ids of {rows:,} x 16"
    report.table(title, ["", "pace"], table, paces=paces)
    report.goal("pace beside libra / nothing", over(paces["libra look-ups"], paces["nothing"]), 0.8, True)
    report.goal("pace beside libra / torch", over(paces["libra look-ups"], paces["torch look-ups"]), 0.8, True)


def _count_beside(run: Callable[[Tensor], Any], batches: list[Tensor], seconds: float) -> float:
    """Returns millions of counts a second of another thread."""
    counts, is_over = [0], threading.Event()

    def count() -> None:
        counted = 0
        while not is_over.is_set():
            for _ in range(1000):
                counted += 1
        counts[0] = counted

    counter = threading.Thread(target=count)
    begin = time.perf_counter()
    counter.start()
    while time.perf_counter() - begin < seconds:
        for ids in batches:
            run(ids)
    is_over.set()
    counter.join()
    return counts[0] / (time.perf_counter() - begin) / 1e6


def memory(options: Options, report: Report) -> None:
    """Resident memory over 20,000 steps."""
    steps, size = options.size(20_000), options.size(256)
    batches = neumf_batches(size)
    for mode in MODES:
        with sessions() as start:
            of = start(mode)
            system: System = libra_adam(mode, NeuMF, batches, of)
            # Rows take memory when they have their first gradient.
            for _ in range(max(options.size(1000), BATCHES)):
                system.step()
            system.finish()
            before = _resident()
            for _ in range(steps):
                system.step()
            system.finish()
            grown = (_resident() - before) / 1e6
        report.table(f"Memory, {steps:,} steps, mode {mode}", ["MB before", "MB more"], [[f"{before / 1e6:,.1f}", f"{grown:,.2f}"]])
        report.goal(f"growth in mode {mode}, MB", grown, 5, False)


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def processes(options: Options, report: Report) -> None:
    """NeuMF in two processes of one thread: with torchrun, which this starts."""
    if "RANK" in os.environ:
        _run_worker(options, report)
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "libra_ps.bench", "processes", "--turns", str(options.turns), "--seconds", str(options.seconds)]
    command += ["--divide", str(options.divide), "--dense", options.dense]
    command += [] if options.sparse else ["--no-sparse"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--json", str(path)], check=True, env=environment)
        report.read(path)


def _run_worker(options: Options, report: Report) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    dist.init_process_group("gloo")
    rank, workers, size = dist.get_rank(), dist.get_world_size(), options.size(1024)
    torch.manual_seed(0)
    batches = neumf_batches(size, 10 * rank + 1)

    def wait() -> None:
        dist.barrier()

    def of_torch(name: str, model: nn.Module, make: Callable[[nn.Module], list[torch.optim.Optimizer]]) -> System:
        return train(name, DDP(model), make(model), batches, wait)

    systems = [of_torch("torch dense", NeuMF(nn.Embedding), dense_adam)]
    if options.sparse:
        systems.append(of_torch("torch sparse", NeuMF(sparse_embedding), sparse_adam))
    of = session.init()
    model: nn.Module = NeuMF(libra_embedding)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    name = f"libra {of.mode}, dense {options.dense}"
    if options.dense == "server":
        wrap: Any = optim.wrap
        if "dense" not in inspect.signature(wrap).parameters:
            sys.exit("--dense server: optim.wrap of this version has no option dense")
        optimizer = wrap(adam, model, dense="server")
    else:
        optimizer = optim.wrap(adam, model)
        model = DDP(model)

    def finish() -> None:
        of.flush()
        wait()

    systems.append(train(name, model, [optimizer], batches, finish))
    steps = {system.name: _steps_of(system, options.seconds) for system in systems}
    times: dict[str, list[float]] = {system.name: [] for system in systems}
    for _ in range(options.turns):
        for system in systems:
            system.finish()
            begin = time.perf_counter()
            for _ in range(steps[system.name]):
                system.step()
            system.finish()
            times[system.name].append((time.perf_counter() - begin) / steps[system.name])
    if rank == 0:
        _print_steps(report, f"NeuMF, batch {size:,}, {workers} processes of 1 thread", times, workers * size, None)
        if options.sparse:
            report.goal("libra / torch sparse, samples/s", over(times["torch sparse"], times[name]), 3, True)
        report.goal("libra / torch dense, samples/s", over(times["torch dense"], times[name]), 1.2, True)
    dist.barrier()
    session.shutdown()
    dist.destroy_process_group()


def _steps_of(system: System, seconds: float) -> int:
    """Returns the steps of a turn, equal in all processes."""
    import torch.distributed as dist

    system.step()
    system.finish()
    begin = time.perf_counter()
    for _ in range(BATCHES):
        system.step()
    system.finish()
    steps = torch.tensor([max(int(seconds * BATCHES / (time.perf_counter() - begin)), 1)])
    dist.broadcast(steps, 0)
    return int(steps)


RUNS: dict[str, Callable[[Options, Report], None]] = {
    run.__name__: run for run in (neumf, tables, bags, overhead, thread, processes, memory)
}
