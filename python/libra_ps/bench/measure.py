"""Times of systems that run in turns, and tables of them."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Terminal columns of a table.
COLUMNS = 100


@dataclass(frozen=True)
class System:
    """One of the systems that are compared."""

    name: str
    step: Callable[[], None]
    #: Waits for what steps have left to other threads.
    finish: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Spread:
    """Median of several turns, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])

    def text(self, digits: int) -> str:
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


@dataclass
class Report:
    """Results of a run: tables for the terminal, and the same as JSON."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]], **record: Any) -> None:
        """Prints a table, and keeps the record of it."""
        lines = [header, *rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        print(title)
        for line in lines:
            first, *others = (cell.ljust(width) if column == 0 else cell.rjust(width)
                              for column, (cell, width) in enumerate(zip(line, widths)))  # fmt: skip
            print("  ".join(["", first, *others])[:COLUMNS].rstrip())
        self.records.append({"title": title, **record})

    def goal(self, what: str, measured: float, bound: float, is_lowest: bool, digits: int = 2) -> None:
        """Prints a goal: `measured` must be at least `bound`, or at most."""
        is_met = measured >= bound if is_lowest else measured <= bound
        sign = ">=" if is_lowest else "<="
        print(f"  {what}: {measured:,.{digits}f}, goal {sign} {bound:,g}: {'met' if is_met else 'missed'}"[:COLUMNS])
        self.records.append({"goal": what, "measured": measured, "bound": bound, "is_lowest": is_lowest, "is_met": is_met})

    def read(self, path: Path) -> None:
        """Takes in the records of another process."""
        self.records += json.loads(path.read_text(encoding="utf-8"))["results"]

    def write(self, path: Path, **settings: Any) -> None:
        path.write_text(json.dumps({**settings, "results": self.records}, indent=1) + "\n", encoding="utf-8")


def run_for(system: System, seconds: float) -> float:
    """Runs steps for so long; returns seconds a step."""
    begin, steps = time.perf_counter(), 0
    while True:
        system.step()
        steps += 1
        if time.perf_counter() - begin >= seconds:
            system.finish()
            return (time.perf_counter() - begin) / steps


def in_turns(systems: Sequence[System], turns: int, seconds: float, warm_up: int) -> dict[str, list[float]]:
    """Runs systems in turns, in another order each time; returns seconds a step by name and turn."""
    times: dict[str, list[float]] = {system.name: [] for system in systems}
    for system in systems:
        for _ in range(warm_up):
            system.step()
        system.finish()
    for turn in range(turns):
        first = turn % len(systems)
        for system in (*systems[first:], *systems[:first]):
            times[system.name].append(run_for(system, seconds))
    return times


def over(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Returns the median of the ratios of the turns."""
    return statistics.median(numerator / denominator for numerator, denominator in zip(numerators, denominators))


def beyond(times: Mapping[str, Sequence[float]], name: str, floor: str) -> list[float]:
    """Returns the time of a system beyond the floor, by turn."""
    return [time - least for time, least in zip(times[name], times[floor])]
