"""Jobs whose samples are dealt in chunks: workers that come, go and are killed, and jobs that resume."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import Cluster, free_port, libra_binary, start, torchrun

SAMPLES = 4000


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    started: list[Cluster] = []
    yield started
    for cluster in started:
        cluster.kill()


def worker(cluster: Cluster, *arguments: str) -> subprocess.Popen[str]:
    return start("dealt.py", 0, 1, free_port(), *arguments, LIBRA_CONTROLLER=cluster.address)


def wait_until_working(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "working\n", (line, process.communicate(timeout=30))


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=30)


def last_counts(output: str) -> tuple[int, int]:
    """How often the samples were trained in the end: least and most."""
    least, most = re.findall(r"^epoch \d+: (\d+) to (\d+),", output, re.MULTILINE)[-1]
    return int(least), int(most)


def trained(output: str) -> int:
    return int(re.findall(r"trained (\d+)", output)[-1])


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), outputs
    return [output for output, _ in outputs]


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_workers_of_torchrun_train_each_sample_once(mode: str) -> None:
    pytest.importorskip("torch")
    done = torchrun("dealt.py", f"--mode={mode}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert last_counts(done.stdout) == (2, 2), done.stdout


def test_workers_come_and_leave_and_each_sample_is_trained_once(tmp_path: Path, clusters: list[Cluster]) -> None:
    report = tmp_path / "report.json"
    cluster = Cluster(tmp_path, f"--json={report}", workers="1..3")
    clusters.append(cluster)
    first = worker(cluster, "--pause=0.01")
    wait_until_working(first)
    leaver = worker(cluster, "--pause=0.01", "--leave-after=30")
    late = worker(cluster, "--pause=0.01")
    [output, left, other] = finish([first, leaver, late])
    assert cluster.end() == 0, cluster.log("controller")
    # The batch in which it left was pushed, and its chunk is dealt again.
    least, most = last_counts(output)
    assert least == 2 and most <= 3, output
    assert int(re.findall(r"left after (\d+)", left)[0]) == 500, left
    data = json.loads(report.read_text())["counts"]["data"]
    assert data["samples"] == 2 * SAMPLES and data["repeated_chunks"] == 0, data
    assert trained(other) > 0 and trained(output) < 2 * SAMPLES


def test_chunks_of_a_worker_that_is_killed_are_dealt_again(tmp_path: Path, clusters: list[Cluster]) -> None:
    report = tmp_path / "report.json"
    cluster = Cluster(tmp_path, f"--json={report}", workers="1..3")
    clusters.append(cluster)
    first = worker(cluster, "--pause=0.01")
    wait_until_working(first)
    victim = worker(cluster, "--pause=0.01")
    wait_until_working(victim)
    end(victim)
    [output] = finish([first])
    assert cluster.end() == 0, cluster.log("controller")
    least, most = last_counts(output)
    assert least == 2 and most <= 3, output
    data = json.loads(report.read_text())["counts"]["data"]
    assert data["samples"] == 2 * SAMPLES and data["repeated_chunks"] <= 2, data


def test_a_job_that_is_killed_resumes_with_its_position(tmp_path: Path, clusters: list[Cluster]) -> None:
    places = [tmp_path / "run-1", tmp_path / "run-2"]
    durable = ("--checkpoint-every=1", "--checkpoint-at=chunks", "--log")
    for place in places:
        place.mkdir()
    cluster = Cluster(places[0], *durable, servers=2, workers=1)
    clusters.append(cluster)
    first = worker(cluster, "--pause=0.01")
    wait_until_working(first)
    deadline = time.monotonic() + 60
    while "checkpoint 2" not in cluster.log("controller") and time.monotonic() < deadline:
        time.sleep(0.1)
    end(first)
    cluster.kill()
    state = tmp_path / "state"
    state.mkdir()
    for shard in sorted(places[0].glob("server-*/*")):
        shard.rename(state / shard.name)
    shown = subprocess.run(
        [libra_binary(), "checkpoint", "inspect", str(state)], capture_output=True, text=True, check=True
    )
    assert f'"counts", {SAMPLES:,} samples in an order' in shown.stdout, shown.stdout

    report = tmp_path / "report.json"
    cluster = Cluster(places[1], *durable, f"--resume={state}", f"--json={report}", servers=1, workers=2)
    clusters.append(cluster)
    other = worker(cluster, "--data=others")
    _, errors = other.communicate(timeout=60)
    assert other.returncode != 0 and 'the job that the controller resumes had "counts", 4,000 samples' in errors, errors
    output = finish([worker(cluster), worker(cluster)])[0]
    assert cluster.end() == 0, cluster.log("controller")
    assert "goes on from checkpoint" in cluster.log("controller")
    assert last_counts(output) == (2, 2), output
    data = json.loads(report.read_text())["counts"]["data"]
    assert data["samples"] == 2 * SAMPLES and data["repeated_chunks"] == 0, data


def test_a_worker_without_chunks_is_refused(tmp_path: Path, clusters: list[Cluster]) -> None:
    cluster = Cluster(tmp_path, workers="1..2")
    clusters.append(cluster)
    first = worker(cluster, "--pause=0.01")
    wait_until_working(first)
    other = worker(cluster, "--chunk=100")
    _, errors = other.communicate(timeout=60)
    assert other.returncode != 0 and "the job has" in errors and "in chunks of 50" in errors, errors
    end(first)
