"""Trackers that follow the events of a job. Those whose client is not installed are skipped."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from libra_ps import track

#: The events of a job of two workers on synthetic data, whose switch was killed.
RECORDED = Path(__file__).with_name("events.jsonl")
LINES = RECORDED.read_bytes().splitlines(keepends=True)


def last_of(kind: str) -> dict[str, Any]:
    return next(event for event in map(json.loads, reversed(LINES)) if event["event"] == kind)


class Recorder:
    """A tracker that keeps everything."""

    def __init__(self) -> None:
        self.points: list[track.Point] = []
        self.failure: list[str | None] = []

    def write(self, point: track.Point) -> None:
        self.points.append(point)

    def close(self, failure: str | None) -> None:
        self.failure.append(failure)


def record(lines: list[bytes]) -> tuple[int, Recorder]:
    recorder = Recorder()
    return track.track(track.events(iter(lines)), [recorder]), recorder


def points_of_lines(recorder: Recorder) -> int:
    """The number of points without those of whole epochs, which are all in the last line."""
    return sum("quality/hr10" not in point.values for point in recorder.points)


def test_evaluations_of_parts_are_those_of_workers() -> None:
    evaluated = {
        **json.loads(LINES[0]),
        "event": "epoch_evaluated",
        "role": "worker",
        "member": "worker 1",
        "epoch": 0,
        "quality": {"hr10": 0.5},
    }
    _, recorder = record([json.dumps(evaluated).encode(), LINES[-1]])
    assert recorder.points[0].values == {"worker_1/hr10": 0.5, "epoch": 0}


def test_points_have_samples_loss_and_shares() -> None:
    code, recorder = record(LINES)
    assert (code, recorder.failure) == (0, [None])
    steps = [point.samples for point in recorder.points if point.event["event"] != "epoch_evaluated"]
    assert steps == sorted(steps)
    counts = last_of("job_counts")
    assert steps[-1] == last_of("job_done")["totals"]["worker"]["training"]["samples"] >= counts["progress"]["samples"] > 0
    assert recorder.points[-1].values["train/progress"] == 1
    last = next(point for point in reversed(recorder.points) if point.event["event"] == "job_counts")
    worker = counts["totals"]["worker"]
    assert last.values["train/loss"] == counts["progress"]["loss"]
    assert last.values["job/hot_share_pushed"] == worker["rows_hot"] / worker["rows"]
    assert any(
        abs(sum(value for name, value in point.values.items() if name.startswith("step/")) - 1) < 1e-9
        for point in recorder.points
    )
    assert recorder.points[-1].values["job/pushes"] == last_of("job_done")["totals"]["worker"]["pushes"]
    epochs = [
        (point.values["epoch"], point.values["quality/hr10"], point.samples)
        for point in recorder.points
        if "quality/hr10" in point.values
    ]
    assert [epoch[:2] for epoch in epochs] == [
        (index, epoch["hr10"]) for index, epoch in enumerate(last_of("job_done")["epochs"])
    ]
    assert epochs[-1][2] == steps[-1], "the last epoch ends with the last sample"


def test_a_failed_job_has_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    failed = {
        "time": "2026-11-26T03:00:00.000Z",
        "event": "job_failed",
        "role": "controller",
        "member": None,
        "reason": "server 0 is lost",
    }
    code, recorder = record([LINES[0], json.dumps(failed).encode(), LINES[1]])
    assert (code, recorder.failure) == (1, ["server 0 is lost"])
    assert len(recorder.points) == 2, "nothing comes after the last event"
    assert capsys.readouterr().err == "libra_ps.track: server 0 is lost\n"


def test_events_without_an_end_are_no_success() -> None:
    code, recorder = record(LINES[:-1])
    assert (code, recorder.failure) == (1, ["the events end before the job"])


def test_unknown_events_have_no_values() -> None:
    new = b'{"time": "2026-11-26T03:00:00.000Z", "event": "moon_rose", "role": "controller", "member": null, "phase": 1}\n'
    code, recorder = record([new, *LINES])
    assert code == 0
    assert recorder.points[0].values == {}


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON",
        b"[]",
        b"7",
        b'{"event": 3}',
        b'{"event": "job_counts", "time": "soon"}',
        b'{"event": "job_counts"}',
        b"\xff\xfe",
    ],
)
def test_lines_that_are_no_events_are_reported(line: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    code, recorder = record([line, b"\n", *LINES])
    assert (code, points_of_lines(recorder)) == (0, len(LINES))
    assert capsys.readouterr().err.startswith("libra_ps.track: no event, ignored: ")


def test_counts_that_go_back_are_no_negative_rates() -> None:
    counts = [line for line in LINES if b'"job_counts"' in line]
    _, recorder = record(
        [counts[-1], counts[0].replace(json.loads(counts[0])["time"].encode(), json.loads(counts[-1])["time"].encode())]
    )
    assert recorder.points[1].samples == recorder.points[0].samples
    assert not any(name.startswith("step/") or name.endswith("per_second") for name in recorder.points[1].values)


def followed(path: Path, happens: list[Callable[[], object]]) -> Iterator[bytes]:
    """Follows a file to which something happens whenever it has not grown."""
    left = iter(happens)

    class Over(Exception):
        pass

    def sleep(_: float) -> None:
        happen = next(left, None)
        if happen is None:
            raise Over
        happen()

    try:
        yield from track.follow(path, sleep)
    except Over:
        return


def append(path: Path, text: bytes) -> Callable[[], object]:
    def write() -> None:
        with path.open("ab") as file:
            file.write(text)

    return write


def test_a_file_is_awaited_and_may_grow_by_parts_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    happens = [lambda: None, append(path, b"a\nb"), append(path, b"c"), append(path, b"\n\nd")]
    assert list(followed(path, happens)) == [b"a", b"bc", b""]


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(tmp_path: Path) -> None:
    path, old = tmp_path / "events.jsonl", tmp_path / "events.jsonl.1"
    append(path, b"a\n")()

    def rotate() -> None:
        append(path, b"b\n")()
        path.rename(old)
        append(old, b"c\nleft in the midst")()

    assert list(followed(path, [rotate, append(path, b"d\n")])) == [b"a", b"b", b"c", b"d"]


def test_a_file_that_was_cut_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append(path, b"first\npart")()
    assert list(followed(path, [lambda: path.write_bytes(b"new\n")])) == [b"first", b"new"]


def test_a_file_that_grows_is_followed_to_the_end_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for line in LINES:
                file.write(line[:7])
                file.write(line[7:])

    writer = threading.Thread(target=write)
    writer.start()
    recorder = Recorder()
    assert track.track(track.events(track.follow(path)), [recorder]) == 0
    writer.join()
    assert points_of_lines(recorder) == len(LINES)


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips a test without tensorboardX, which takes the folder of the tests with torch for torch where that is not installed."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        monkeypatch.setitem(sys.modules, "torch", None)
    pytest.importorskip("tensorboardX")


@pytest.mark.usefixtures("tensorboard")
def test_the_standard_input_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"".join(LINES))))
    assert track.main(["--tensorboard", os.fspath(tmp_path), "-"]) == 0


@pytest.mark.parametrize(
    ("option", "module", "package"),
    [
        ("--tensorboard", "tensorboardX", "tensorboardX"),
        ("--mlflow", "mlflow", "mlflow"),
        ("--wandb", "wandb", "wandb"),
        ("--mllog", "mlperf_logging.mllog.mllog", "mlperf-logging"),
    ],
)
def test_a_client_that_is_missing_is_one_line(option: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as caught:
        track.main([option, "somewhere", "events.jsonl"])
    line = str(caught.value)
    assert line.endswith(f": pip install {package}") and "\n" not in line


def test_no_tracker_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        track.main(["events.jsonl"])
    assert caught.value.code == 2
    assert "name a tracker" in capsys.readouterr().err


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_has_the_points(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    assert track.main(["--tensorboard", os.fspath(tmp_path), os.fspath(RECORDED)]) == 0
    (path,) = tmp_path.glob("events.out.tfevents.*")
    written = path.read_bytes()
    scalars = {}
    while written:
        (length,) = struct.unpack_from("<Q", written)
        event = Event.FromString(written[12 : 12 + length])
        scalars |= {value.tag: (event.step, value.simple_value) for value in event.summary.value}
        written = written[16 + length :]
    training = last_of("job_done")["totals"]["worker"]["training"]
    assert scalars["train/loss"] == (training["samples"], pytest.approx(training["loss"], rel=1e-6))
    assert scalars["job/pushes"][1] == last_of("job_done")["totals"]["worker"]["pushes"]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_the_points(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    assert track.main(["--mlflow", uri, os.fspath(RECORDED)]) == 0
    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("libra").experiment_id])
    assert run.info.status == "FINISHED"
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    training = last_of("job_done")["totals"]["worker"]["training"]
    assert (losses[-1].step, losses[-1].value) == (training["samples"], training["loss"])


def test_wandb_has_an_offline_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    # Its process writes when this one ends.
    arguments = ["-m", "libra_ps.track", "--wandb", os.fspath(tmp_path), os.fspath(RECORDED)]
    subprocess.run([sys.executable, *arguments], check=True, timeout=120)
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"train/loss" in path.read_bytes()


def test_mllog_has_begin_accuracy_and_end(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_logging")
    path = tmp_path / "run.log"
    assert track.main(["--mllog", os.fspath(path), os.fspath(RECORDED)]) == 0
    lines = path.read_text().splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    entries = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    assert (entries[0]["key"], entries[-1]["key"]) == ("run_start", "run_stop")
    assert entries[-1]["metadata"]["status"] == "success"
    accuracies = [entry for entry in entries if entry["key"] == "eval_accuracy"]
    hit_rates = [entry["value"] for entry in accuracies if entry["metadata"]["metric"] == "hr10"]
    assert hit_rates == [epoch["hr10"] for epoch in last_of("job_done")["epochs"]]
    assert entries[0]["time_ms"] <= accuracies[0]["time_ms"] <= entries[-1]["time_ms"]


def test_followers_stop_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"a\nb\n")
    assert list(islice(track.follow(path), 2)) == [b"a", b"b"]
