"""Follows the events of a job (`--events FILE`) into TensorBoard, MLflow, Weights & Biases, and lines of MLPerf.

    python -m libra_ps.track --tensorboard runs/1 --mlflow sqlite:///runs.db --wandb runs --mllog run.log events.jsonl

The file may not be there yet, and may be rotated. The end is that of the job; `-` is the standard input. Each tracker is
imported when it is asked for.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol

Event = Mapping[str, Any]

#: Between two looks at a file that has not grown.
LOOK_EVERY = 0.2
#: Events that are the last of a job.
LAST = ("job_done", "job_failed")
PARTS = ("data", "pull", "compute", "push", "clock")


def follow(path: Path, sleep: Callable[[float], None] = time.sleep) -> Iterator[bytes]:
    """Returns the lines of a file that grows, from its beginning; it never ends by itself.

    A file that is replaced is read to its end, and then the new one; one that is shorter than before is read again.
    """
    file: BinaryIO | None = None
    rest = b""
    try:
        while True:
            if file is None:
                try:
                    file = path.open("rb")
                except FileNotFoundError:
                    sleep(LOOK_EVERY)
                    continue
            # Looked up before the read: what is written to a file until it is replaced is read.
            replaced = _is_replaced(path, file)
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)
                rest = b""
            read = file.read()
            *lines, rest = (rest + read).split(b"\n")
            yield from lines
            if replaced:
                # Another process writes to the new file: it does not go on with a part of a line.
                file.close()
                file, rest = None, b""
            elif not read:
                sleep(LOOK_EVERY)
    finally:
        if file is not None:
            file.close()


def _is_replaced(path: Path, file: BinaryIO) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(file.fileno())
    return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)


def events(lines: Iterator[bytes]) -> Iterator[Event]:
    """Returns the events in lines, up to the last one of the job. What is none is reported and left out."""
    for line in lines:
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            if not isinstance(event["event"], str):
                raise TypeError
            _unix_time(event)
        except (ValueError, TypeError, KeyError):
            _report(f"no event, ignored: {line[:80].decode(errors='replace')}")
            continue
        yield event
        if event["event"] in LAST:
            return


def _unix_time(event: Event) -> float:
    # Python 3.10 does not read the letter for UTC.
    return datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


@dataclass(frozen=True)
class Point:
    """What an event says, as trackers take it."""

    event: Event
    #: Seconds since 1970.
    time: float
    #: Seconds since the first event.
    seconds: float
    #: Samples that the job has trained on: the step of trackers.
    samples: int
    values: Mapping[str, float]


@dataclass
class Job:
    """The job, as the events so far tell."""

    began: float | None = None
    samples: int = 0
    _before: tuple[float, Event] | None = field(default=None, repr=False)

    def points(self, event: Event) -> list[Point]:
        """Takes an event in. One that it does not know has no values."""
        points = [self._point(event, self.samples)]
        if event["event"] == "job_done":
            # Each worker evaluates a part of the test data: the measures of all of it are in the last event.
            epochs = event.get("epochs") or []
            whole = [_whole(event, index, epoch) for index, epoch in enumerate(epochs) if epoch]
            points[:0] = [self._point(epoch, self.samples * (epoch["epoch"] + 1) // len(epochs)) for epoch in whole]
        return points

    def _point(self, event: Event, samples: int) -> Point:
        now = _unix_time(event)
        if self.began is None:
            self.began = now
        values: dict[str, Any] = {}
        match event["event"]:
            case "job_counts":
                values = self._counts(now, event)
                samples = self.samples
            case "epoch_evaluated":
                of = str(event.get("member") or "quality").replace(" ", "_")
                values = {f"{of}/{name}": value for name, value in event.get("quality", {}).items()}
                values["epoch"] = event.get("epoch")
            case "view_settled":
                values = {"job/view": event.get("view"), "job/view_seconds": event.get("seconds")}
            case "checkpoint_written":
                values = {"job/checkpoint_seconds": event.get("seconds")}
            case "job_done":
                training = event.get("totals", {}).get("worker", {}).get("training", {})
                samples = self.samples = max(self.samples, training.get("samples", 0))
                values = {"job/seconds": event.get("seconds"), "train/loss": training.get("loss"), **_totals(event)}
                if planned := training.get("samples_planned"):
                    values["train/progress"] = samples / planned
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}
        return Point(event, now, now - self.began, samples, numbers)

    def _counts(self, now: float, event: Event) -> dict[str, Any]:
        progress, worker = event.get("progress", {}), event.get("totals", {}).get("worker", {})
        samples = progress.get("samples", 0)
        # A controller that was started again begins with no counts.
        self.samples = max(self.samples, samples)
        values = {
            "train/loss": progress.get("loss"),
            "train/progress": progress.get("ratio"),
            "job/view": event.get("view"),
            **_totals(event),
        }
        if self._before:
            then, before = self._before
            last = before.get("totals", {}).get("worker", {})
            passed = samples - before.get("progress", {}).get("samples", 0)
            if passed >= 0 and now > then:
                values["train/samples_per_second"] = passed / (now - then)
            steps, last_steps = ((counts.get("training", {}).get("step_us", {})) for counts in (worker, last))
            values |= _parts({part: steps.get(part, 0) - last_steps.get(part, 0) for part in PARTS})
        self._before = (now, event)
        return values


def _whole(done: Event, index: int, epoch: Mapping[str, Any]) -> Event:
    """The evaluation of an epoch by all workers, out of the last event."""
    quality = {name: value for name, value in epoch.items() if name != "workers" and not name.startswith("seconds")}
    return {**done, "event": "epoch_evaluated", "epoch": index, "quality": quality}


def _totals(event: Event) -> dict[str, Any]:
    """The ratios of all counts so far."""
    totals = event.get("totals", {})
    worker, server = totals.get("worker", {}), totals.get("server", {})

    def ratio(part: str, whole: str) -> float | None:
        return worker[part] / worker[whole] if worker.get(whole) and part in worker else None

    return {
        "job/hot_share_pushed": ratio("rows_hot", "rows"),
        "job/hot_share_pulled": ratio("rows_pulled_hot", "rows_pulled"),
        "job/retransmits": ratio("retransmits", "packets"),
        "job/pushes": worker.get("pushes"),
        "job/row_updates": server.get("row_updates"),
    }


def _parts(micros: Mapping[str, int]) -> dict[str, float]:
    """The share of each part of the steps since the last counts."""
    total = sum(micros.values())
    return {f"step/{part}": spent / total for part, spent in micros.items()} if total > 0 and min(micros.values()) >= 0 else {}


class Tracker(Protocol):
    """Where points go."""

    def write(self, point: Point) -> None:
        """Takes a point."""

    def close(self, failure: str | None) -> None:
        """Ends the run, as failed if there is a reason."""


class TensorBoard:
    """Event files of TensorBoard, by tensorboardX."""

    def __init__(self, directory: str) -> None:
        self._writer = _client("tensorboardX", "tensorboardX").SummaryWriter(directory)

    def write(self, point: Point) -> None:
        """Takes a point."""
        for name, value in point.values.items():
            self._writer.add_scalar(name, value, global_step=point.samples, walltime=point.time)

    def close(self, failure: str | None) -> None:
        """Ends the run."""
        if failure is not None:
            self._writer.add_text("failure", failure)
        self._writer.close()


class MLflow:
    """A run of the experiment `libra` of MLflow."""

    def __init__(self, uri: str) -> None:
        _client("mlflow", "mlflow")
        self._entities = importlib.import_module("mlflow.entities")
        self._client = importlib.import_module("mlflow.tracking").MlflowClient(tracking_uri=uri)
        experiment = self._client.get_experiment_by_name("libra")
        number = experiment.experiment_id if experiment else self._client.create_experiment("libra")
        self._run = self._client.create_run(number).info.run_id

    def write(self, point: Point) -> None:
        """Takes a point."""
        values = {**point.values, "seconds": point.seconds} if point.values else {}
        at = round(1000 * point.time)
        metrics = [self._entities.Metric(name, value, at, point.samples) for name, value in values.items()]
        if metrics:
            self._client.log_batch(self._run, metrics=metrics)

    def close(self, failure: str | None) -> None:
        """Ends the run."""
        if failure is not None:
            self._client.set_tag(self._run, "failure", failure)
        self._client.set_terminated(self._run, "FINISHED" if failure is None else "FAILED")


class WandB:
    """A run of Weights & Biases on disk, which `wandb sync` uploads."""

    def __init__(self, directory: str) -> None:
        wandb = _client("wandb", "wandb")
        os.makedirs(directory, exist_ok=True)
        self._run = wandb.init(
            project="libra", dir=directory, mode="offline", settings=wandb.Settings(console="off", silent=True)
        )
        self._run.define_metric("*", step_metric="samples")

    def write(self, point: Point) -> None:
        """Takes a point."""
        if point.values:
            self._run.log({**point.values, "samples": point.samples, "seconds": point.seconds})

    def close(self, failure: str | None) -> None:
        """Ends the run."""
        if failure is not None:
            self._run.summary["failure"] = failure
        self._run.finish(exit_code=0 if failure is None else 1)


class MLLog:
    """Lines `:::MLLOG` of MLPerf, by mlperf-logging."""

    def __init__(self, path: str) -> None:
        mllog = _client("mlperf_logging.mllog.mllog", "mlperf-logging")
        self._handler = logging.FileHandler(path, mode="w", encoding="utf-8")
        logger = logging.Logger("libra_ps.track", logging.INFO)
        logger.addHandler(self._handler)
        self._log = mllog.MLLogger(logger=logger)
        self._last = 0

    def write(self, point: Point) -> None:
        """Takes a point."""
        self._last = round(1000 * point.time)
        about = {"samples_count": point.samples}
        match point.event["event"]:
            case "job_started":
                self._log.start("run_start", time_ms=self._last)
            case "epoch_evaluated" if point.event.get("member") is None:
                for name, value in point.event.get("quality", {}).items():
                    metadata = {**about, "epoch_num": point.event.get("epoch"), "metric": name}
                    self._log.event("eval_accuracy", value, metadata=metadata, time_ms=self._last)
            case _ if point.values:
                self._log.event("tracked_stats", dict(point.values), metadata=about, time_ms=self._last)

    def close(self, failure: str | None) -> None:
        """Ends the run."""
        metadata = {"status": "success"} if failure is None else {"status": "aborted", "reason": failure}
        self._log.end("run_stop", metadata=metadata, time_ms=self._last)
        self._handler.close()


def _client(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SystemExit(f"libra_ps.track: {package} cannot be imported ({error}): pip install {package}") from error


def track(stream: Iterator[Event], trackers: list[Tracker]) -> int:
    """Brings events to trackers until the last one. Returns the exit code: 1 for a job that failed or has no end."""
    job, failure = Job(), "the events end before the job"
    try:
        for event in stream:
            for point in job.points(event):
                for tracker in trackers:
                    tracker.write(point)
            if event["event"] == "job_done":
                failure = ""
            elif event["event"] == "job_failed":
                failure = str(event.get("reason") or "the job failed")
    except KeyboardInterrupt:
        failure = "interrupted"
        return 130
    finally:
        for tracker in trackers:
            tracker.close(failure or None)
    if failure:
        _report(failure)
    return 1 if failure else 0


def _report(text: str) -> None:
    print(f"libra_ps.track: {text}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Follows events as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m libra_ps.track", description=__doc__.partition("\n")[0])
    parser.add_argument("events", metavar="EVENTS", help="file of `--events`, or - for the standard input")
    parser.add_argument("--tensorboard", metavar="DIR", help="directory for event files of TensorBoard")
    parser.add_argument("--mlflow", metavar="URI", help="tracking server or store of MLflow")
    parser.add_argument("--wandb", metavar="DIR", help="directory for an offline run of Weights & Biases")
    parser.add_argument("--mllog", metavar="FILE", help="file for lines :::MLLOG of MLPerf")
    options = parser.parse_args(arguments)
    kinds: list[tuple[str | None, Callable[[str], Tracker]]] = [
        (options.tensorboard, TensorBoard),
        (options.mlflow, MLflow),
        (options.wandb, WandB),
        (options.mllog, MLLog),
    ]
    trackers = [make(to) for to, make in kinds if to is not None]
    if not trackers:
        parser.error("name a tracker: --tensorboard, --mlflow, --wandb or --mllog")
    lines = sys.stdin.buffer if options.events == "-" else follow(Path(options.events))
    return track(events(iter(lines)), trackers)


if __name__ == "__main__":
    sys.exit(main())
