"""TorchRec and Libra on 26 tables, in one process or, under torch.distributed.run, in several.

Started by hand, in an environment of its own: see README.md beside this file.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import libra_ps as libra
from libra_ps.bench.measure import Report, Spread, System, beyond, in_turns, over
from libra_ps.bench.systems import FLOOR, Constant, sessions, zipf_batches

FEATURES, WIDTH, BATCHES = 26, 16, 8
LR, EPS = 0.01, 1e-8
NAMES = [f"feature{index}" for index in range(FEATURES)]
KINDS = ("table-wise", "row-wise")

#: Ids of each feature, the same as one tensor, lengths of all bags, the target.
Batch = tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor]


class Top(nn.Module):
    """Two dense layers above the pooled rows of all features."""

    def __init__(self, tables: nn.Module) -> None:
        super().__init__()
        self.tables = tables
        # The same first values in all systems.
        torch.manual_seed(1)
        self.dense = nn.Sequential(nn.Linear(FEATURES * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids: tuple[Tensor, ...], values: Tensor, lengths: Tensor) -> Tensor:
        score: Tensor = self.dense(self.tables(ids, values, lengths))
        return score.squeeze(1)


class Floor(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.constant = Constant(size, FEATURES * WIDTH)

    def forward(self, *_: Any) -> Any:
        return self.constant()


def bound_of(rows: int) -> float:
    """Returns the bound of the uniform first values of TorchRec."""
    return 1 / math.sqrt(rows)


class Plain(nn.Module):
    """26 modules of torch."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True) for _ in NAMES)
        for weight in self.bags.parameters():
            nn.init.uniform_(weight, -bound_of(rows), bound_of(rows))

    def forward(self, ids: tuple[Tensor, ...], *_: Tensor) -> Tensor:
        return torch.cat([bag(of) for bag, of in zip(self.bags, ids)], 1)


class Ours(nn.Module):
    def __init__(self, rows: int, takes_jagged: bool = False) -> None:
        super().__init__()
        first = libra.Uniform(bound_of(rows))
        self.collection = libra.nn.EmbeddingBagCollection(libra.nn.TableConfig(name, rows, WIDTH, init=first) for name in NAMES)
        self.takes_jagged = takes_jagged

    def forward(self, ids: tuple[Tensor, ...], values: Tensor, lengths: Tensor) -> Tensor:
        features: Any = dict(zip(NAMES, ids))
        if self.takes_jagged:
            from torchrec import KeyedJaggedTensor

            features = KeyedJaggedTensor(NAMES, values, lengths=lengths)
        return torch.cat(list(self.collection(features).values()), 1)


class Kjt(nn.Module):
    """A collection of TorchRec."""

    def __init__(self, collection: nn.Module) -> None:
        super().__init__()
        self.collection = collection

    def forward(self, _: Any, values: Tensor, lengths: Tensor) -> Tensor:
        from torchrec import KeyedJaggedTensor

        pooled: Tensor = self.collection(KeyedJaggedTensor(NAMES, values, lengths=lengths)).values()
        return pooled


class Kernel(nn.Module):
    """The kernel of FBGEMM by itself."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

        self.tables = SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, WIDTH, EmbeddingLocation.HOST, ComputeDevice.CPU)] * FEATURES,
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=LR,
            eps=EPS,
            pooling_mode=PoolingMode.SUM,
        )
        self.tables.init_embedding_weights_uniform(-bound_of(rows), bound_of(rows))

    def forward(self, _: Any, values: Tensor, lengths: Tensor) -> Tensor:
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64)
        torch.cumsum(lengths, 0, out=offsets[1:])
        pooled: Tensor = self.tables(values, offsets)
        return pooled


def make_batches(size: int, ids: int, rows: int, rank: int, workers: int) -> list[Batch]:
    """Draws ids by Zipf's law, from the same tables for all ranks."""
    drawn = zipf_batches(FEATURES, rows, (size, ids), BATCHES * workers)[rank::workers]
    lengths = torch.full((FEATURES * size,), ids, dtype=torch.int64)
    return [(features, torch.cat([of.reshape(-1) for of in features]), lengths, target) for features, target in drawn]


def train(
    name: str,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    batches: list[Batch],
    losses: dict[str, list[float]],
    finish: Callable[[], None] = lambda: None,
) -> System:
    """Returns the system that trains a model."""
    loss_of, source = nn.BCEWithLogitsLoss(), itertools.cycle(batches)
    seen = losses.setdefault(name, [])

    def step() -> None:
        ids, values, lengths, target = next(source)
        loss = loss_of(model(ids, values, lengths), target)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        seen.append(loss.item())

    return System(name, step, finish)


def adagrad(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=LR, eps=EPS)


def with_rule(model: Top, dense: str | None = None) -> torch.optim.Optimizer:
    """Returns the optimizer of a model on Libra, with rowwise Adagrad for all its tables."""
    tables = list(libra.optim.name_tables(model))
    rules = {name: libra.optim.RowwiseAdagrad(LR, EPS) for name in tables}
    wrapped: torch.optim.Optimizer = libra.optim.wrap(adagrad(model.parameters()), model, rules, dense)
    return wrapped


def configs_of(rows: int) -> list[Any]:
    from torchrec import EmbeddingBagConfig

    return [EmbeddingBagConfig(name=name, embedding_dim=WIDTH, num_embeddings=rows, feature_names=[name]) for name in NAMES]


def sharded(rows: int, kind: str) -> tuple[nn.Module, list[torch.optim.Optimizer]]:
    """Returns a model of TorchRec in shards of all ranks, with rowwise Adagrad in its backward pass."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec import EmbeddingBagCollection
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise, table_wise
    from torchrec.distributed.types import ShardingPlan

    workers = dist.get_world_size()
    sharder: Any = EmbeddingBagCollectionSharder(
        fused_params={"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": LR, "eps": EPS}
    )
    model = Top(Kjt(EmbeddingBagCollection(tables=configs_of(rows), device=torch.device("meta"))))
    # A plan that names no kernel has the dense one, whose gradient is a whole table.
    kernel = EmbeddingComputeKernel.FUSED.value
    of_tables = {
        name: row_wise(compute_kernel=kernel) if kind == "row-wise" else table_wise(index % workers, compute_kernel=kernel)
        for index, name in enumerate(NAMES)
    }
    collection: Any = model.tables.collection
    plan = construct_module_sharding_plan(collection, of_tables, sharder, workers, workers, "cpu")
    parallel = DistributedModelParallel(
        model, device=torch.device("cpu"), plan=ShardingPlan({"tables.collection": plan}), sharders=[sharder]
    )
    dense = [parameter for name, parameter in parallel.named_parameters() if ".dense." in f".{name}"]
    return parallel, [adagrad(dense)]


@contextmanager
def reported(name: str, failures: dict[str, str]) -> Iterator[None]:
    """Keeps the error of a system that does not run; the others go on."""
    try:
        yield
    except Exception:
        failures[name] = traceback.format_exc()
        print(f"{name} does not run:\n{failures[name]}", flush=True)


def try_systems(makers: dict[str, Callable[[], System]], failures: dict[str, str]) -> list[System]:
    """Returns the systems that make their first steps."""
    systems = []
    for name, make in makers.items():
        with reported(name, failures):
            system = make()
            for _ in range(BATCHES):
                system.step()
            system.finish()
            systems.append(system)
    return systems


def print_times(
    report: Report, title: str, times: dict[str, list[float]], samples: int, floor: str | None, **record: Any
) -> None:
    rows = []
    for name, seconds in times.items():
        rates = Spread.of(samples / second / 1e3 for second in seconds)
        row = [name, Spread.of(1e3 * second for second in seconds).text(2), rates.text(1)]
        if floor is not None:
            row.append(Spread.of(1e3 * value for value in beyond(times, name, floor)).text(2) if name != floor else "")
        rows.append(row)
    header = ["system", "ms a step", "k samples/s"] + ([] if floor is None else ["E, ms"])
    report.table(title, header, rows, seconds_by_turn=times, samples=samples, **record)


def print_ratios(report: Report, times: dict[str, list[float]], other: str, floor: str | None) -> None:
    """Prints the speed of each system of Libra over that of another, turn by turn."""
    for name in times:
        if other not in times or not name.startswith("libra"):
            continue
        ratios = Spread.of(theirs / ours for theirs, ours in zip(times[other], times[name]))
        print(f"  {name}, speed over {other}: {ratios.text(2)}")
        record: dict[str, Any] = {"ratio": name, "over": other, "median": ratios.median, "low": ratios.low, "high": ratios.high}
        if floor is not None:
            by_rest = over(beyond(times, other, floor), beyond(times, name, floor))
            print(f"  {name}, speed over {other}, beyond the floor: {by_rest:.2f}")
            record["beyond_floor"] = by_rest
        report.records.append(record)


def run_alone(options: argparse.Namespace, report: Report, ids: int) -> None:
    batches = make_batches(options.batch, ids, options.rows, 0, 1)
    losses: dict[str, list[float]] = {}
    failures: dict[str, str] = {}

    def floor() -> System:
        model = Top(Floor(options.batch))
        return train(FLOOR, model, [adagrad(model.dense.parameters())], batches, losses)

    def plain() -> System:
        model = Top(Plain(options.rows))
        return train("torch, sparse", model, [adagrad(model.parameters())], batches, losses)

    def fused() -> System:
        from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
        from torchrec.optim import RowWiseAdagrad

        tables = FusedEmbeddingBagCollection(configs_of(options.rows), RowWiseAdagrad, {"lr": LR, "eps": EPS})
        model = Top(Kjt(tables))
        return train("torchrec, fused", model, [adagrad(model.dense.parameters())], batches, losses)

    def kernel() -> System:
        model = Top(Kernel(options.rows))
        return train("fbgemm kernel", model, [adagrad(model.dense.parameters())], batches, losses)

    with sessions() as start:

        def ours(name: str, mode: str) -> System:
            of = start(mode)
            model = Top(Ours(options.rows, "jagged" in name))
            return train(name, model, [with_rule(model)], batches, losses, of.flush)

        makers: dict[str, Callable[[], System]] = {
            FLOOR: floor,
            "torch, sparse": plain,
            "torchrec, fused": fused,
            "fbgemm kernel": kernel,
            "libra sync": partial(ours, "libra sync", "sync"),
            "libra async": partial(ours, "libra async", "async"),
            "libra async, jagged": partial(ours, "libra async, jagged", "async"),
        }
        systems = try_systems(makers, failures)
        times = in_turns(systems, options.turns, options.seconds, 1)
        steps = {name: max(int(options.seconds / min(seconds)), 2) for name, seconds in times.items()}
        print_cpu(report, systems, steps)
    title = f"{FEATURES} x {options.rows:,} x {WIDTH}, {ids} ids, batch {options.batch:,}, 1 process"
    title += f", {torch.get_num_threads()} threads"
    print_times(report, title, times, options.batch, FLOOR, failures=failures, losses=losses_of(losses))
    for other in ("fbgemm kernel", "torchrec, fused", "torch, sparse"):
        print_ratios(report, times, other, FLOOR)


def print_cpu(report: Report, systems: list[System], steps: dict[str, int]) -> None:
    """Prints the CPU time of a step, of all threads and processes. It depends less on other work of the machine."""
    spent: dict[str, list[float]] = {system.name: [] for system in systems}
    for _ in range(3):
        for system in systems:
            system.finish()
            begin = time.process_time()
            for _ in range(steps[system.name]):
                system.step()
            system.finish()
            seconds = torch.tensor([time.process_time() - begin], dtype=torch.float64)
            if dist.is_initialized():
                dist.all_reduce(seconds)
            spent[system.name].append(float(seconds) / steps[system.name])
    if int(os.environ.get("RANK", 0)) == 0:
        rows = [[name, Spread.of(1e3 * value for value in values).text(1)] for name, values in spent.items()]
        report.table("CPU time", ["system", "ms a step"], rows, cpu_seconds=spent)


def losses_of(losses: dict[str, list[float]]) -> dict[str, list[float]]:
    """Prints and returns the mean loss of the first passes over the batches, which are the same for all systems."""
    passes = {}
    for name, loss in losses.items():
        begins = range(0, min(len(loss) + 1 - BATCHES, 4 * BATCHES), BATCHES)
        passes[name] = [sum(loss[begin : begin + BATCHES]) / BATCHES for begin in begins]
        print(f"  loss of {name} by pass: " + ", ".join(f"{value:.4f}" for value in passes[name]))
    return passes


def check() -> None:
    """Prints the largest difference of rows after equal steps of Libra in mode sync and of FBGEMM's kernel."""
    rows, steps = 1000, 8
    for ids in (1, 20):
        batches = make_batches(256, ids, rows, 0, 1)
        with sessions() as start:
            of = start("sync")
            ours, theirs = Top(Ours(rows)), Top(Kernel(rows))
            tables: Any = theirs.tables.tables
            first = rows_of(ours, rows)
            for weight, values in zip(tables.split_embedding_weights(), first):
                weight.data.copy_(values)
            systems = [
                train("libra", ours, [with_rule(ours)], batches, {}, of.flush),
                train("fbgemm", theirs, [adagrad(theirs.dense.parameters())], batches, {}),
            ]
            for system in systems:
                for _ in range(steps):
                    system.step()
                system.finish()
            last = rows_of(ours, rows)
            pairs = zip(tables.split_embedding_weights(), last, strict=True)
            difference = max(float((weight - values).abs().max()) for weight, values in pairs)
            moved = max(float((before - after).abs().max()) for before, after in zip(first, last))
            print(f"{ids} ids, {steps} steps: values moved by up to {moved:.4f}, and differ by up to {difference:.1e}")


def rows_of(model: nn.Module, rows: int) -> list[Tensor]:
    return [values.clone() for values in model.state_dict().values() if values.shape == (rows, WIDTH)]


def run_workers(options: argparse.Namespace, report: Report, ids: int) -> None:
    rank, workers = dist.get_rank(), dist.get_world_size()
    batches = make_batches(options.batch, ids, options.rows, rank, workers)
    losses: dict[str, list[float]] = {}
    failures: dict[str, str] = {}

    def wait() -> None:
        dist.barrier()

    def plain() -> System:
        model = DistributedDataParallel(Top(Plain(options.rows)))
        return train("torch, sparse, DDP", model, [adagrad(model.parameters())], batches, losses, wait)

    def torchrec(kind: str) -> System:
        model, optimizers = sharded(options.rows, kind)
        return train(f"torchrec, {kind}", model, optimizers, batches, losses, wait)

    with sessions() as start:

        def ours(mode: str) -> System:
            of = start(mode)
            model = Top(Ours(options.rows))
            optimizer = with_rule(model, "server")

            def finish() -> None:
                of.flush()
                wait()

            return train(f"libra {mode}", model, [optimizer], batches, losses, finish)

        makers: dict[str, Callable[[], System]] = {"torch, sparse, DDP": plain}
        makers |= {f"torchrec, {kind}": partial(torchrec, kind) for kind in KINDS}
        makers |= {f"libra {mode}": partial(ours, mode) for mode in ("sync", "async")}
        makers = {name: make for name, make in makers.items() if options.only is None or options.only in name}
        systems = try_systems(makers, failures)
        times: dict[str, list[float]] = {system.name: [] for system in systems}
        steps = {system.name: steps_of(system, options.seconds) for system in systems}
        for turn in range(options.turns):
            first = turn % len(systems)
            for system in (*systems[first:], *systems[:first]):
                system.finish()
                begin = time.perf_counter()
                for _ in range(steps[system.name]):
                    system.step()
                system.finish()
                times[system.name].append((time.perf_counter() - begin) / steps[system.name])
        print_cpu(report, systems, steps)
    if rank == 0:
        title = f"{FEATURES} x {options.rows:,} x {WIDTH}, {ids} ids, batch {options.batch:,} a process, {workers} processes"
        print_times(report, title, times, workers * options.batch, None, failures=failures, losses=losses_of(losses))
        for other in times:
            if not other.startswith("libra"):
                print_ratios(report, times, other, None)


def steps_of(system: System, seconds: float) -> int:
    """Returns the steps of a turn, equal in all processes."""
    begin = time.perf_counter()
    for _ in range(BATCHES // 2):
        system.step()
    system.finish()
    steps = torch.tensor([max(int(seconds * (BATCHES // 2) / (time.perf_counter() - begin)), 1)])
    dist.broadcast(steps, 0)
    return int(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, nargs="+", default=[1, 20], help="ids of a bag")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=2048, help="samples of a process")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one system in one turn")
    parser.add_argument("--only", help="systems of several processes whose names have this in them")
    parser.add_argument("--check", action="store_true", help="compare rows instead of times")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    report = Report()
    if options.check:
        check()
        return
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    for ids in options.ids:
        (run_workers if "RANK" in os.environ else run_alone)(options, report, ids)
    if options.json is not None and int(os.environ.get("RANK", 0)) == 0:
        report.write(options.json, versions=versions())
    if "RANK" in os.environ:
        dist.barrier()
        dist.destroy_process_group()


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"torch": str(torch.__version__)}
    for name in ("torchrec", "fbgemm-gpu-cpu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


if __name__ == "__main__":
    main()
