"""Jobs whose members are processes of the binary, and that lose some of them."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import Cluster, free_port, libra_binary, start, torchrun

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    alone = start("skewed.py", 0, 1, free_port(), "sync", "2000", LIBRA_PROFILE=str(path))
    _, errors = alone.communicate(timeout=60)
    assert alone.returncode == 0, errors
    return path


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    started: list[Cluster] = []
    yield started
    for cluster in started:
        cluster.kill()


def wait_until_working(worker: subprocess.Popen[str]) -> None:
    assert worker.stdout is not None
    assert worker.stdout.readline() == "working\n"


def test_a_controller_takes_the_tables_of_its_workers(tmp_path: Path, clusters: list[Cluster]) -> None:
    cluster = Cluster(tmp_path)
    clusters.append(cluster)
    arguments = (f"--checkpoint={tmp_path / 'checkpoint'}", "--steps=40")
    workers = [start("servers.py", rank, 2, free_port(), *arguments, LIBRA_CONTROLLER=cluster.address) for rank in range(2)]
    outputs = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert cluster.end() == 0, cluster.log("controller")


def test_a_token_lets_in_those_that_have_it(
    tmp_path: Path, clusters: list[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = subprocess.run([libra_binary(), "token"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("LIBRA_TOKEN", made.stdout.strip())
    cluster = Cluster(tmp_path)
    clusters.append(cluster)
    one = {"LIBRA_CONTROLLER": cluster.address}
    arguments = (f"--checkpoint={tmp_path / 'checkpoint'}", "--steps=40")
    for token, refusal in (("", "it speaks TLS, and this end has no token"), ("libra1_x", "LIBRA_TOKEN: a token is libra1_")):
        stranger = start("servers.py", 0, 2, free_port(), *arguments, **one, LIBRA_TOKEN=token)
        _, errors = stranger.communicate(timeout=60)
        assert stranger.returncode != 0 and refusal in errors, errors
    workers = [start("servers.py", rank, 2, free_port(), *arguments, **one) for rank in range(2)]
    outputs = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert cluster.end() == 0, cluster.log("controller")


def test_dense_parameters_and_rows_are_on_the_servers_of_rank_0(tmp_path: Path) -> None:
    done = torchrun("servers.py", f"--checkpoint={tmp_path}", "--steps=200")
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_worker_with_another_plan_is_refused(tmp_path: Path, plan: Path, clusters: list[Cluster]) -> None:
    cluster = Cluster(tmp_path)
    clusters.append(cluster)
    one = {"LIBRA_CONTROLLER": cluster.address}
    workers = [
        start("skewed.py", 0, 2, free_port(), "async", "2000", **one),
        start("skewed.py", 1, 2, free_port(), "async", "2000", **one, LIBRA_PLAN=str(plan)),
    ]
    # Either of them may be the first.
    deadline = time.monotonic() + 30
    while all(worker.poll() is None for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    refused = next(worker for worker in workers if worker.poll() is not None)
    _, errors = refused.communicate()
    assert "has another job than worker" in errors and "plan of hot rows is not the same" in errors, errors
    for worker in workers:
        if worker.poll() is None:
            worker.kill()
        worker.communicate()


def test_the_state_directory_of_another_job_is_refused(tmp_path: Path, clusters: list[Cluster]) -> None:
    def job(folder: str, *arguments: str) -> tuple[Cluster, subprocess.Popen[str]]:
        (tmp_path / folder).mkdir(exist_ok=True)
        cluster = Cluster(tmp_path / folder, "--log", servers=1, workers=1)
        clusters.append(cluster)
        return cluster, start("skewed.py", 0, 1, free_port(), *arguments, LIBRA_CONTROLLER=cluster.address)

    # A job that ends before it is done, and one of another table with what it has left.
    cluster, worker = job("killed", "async", "2000", "300")
    wait_until_working(worker)
    worker.kill()
    worker.communicate()
    cluster.kill()
    cluster, worker = job("killed", "async", "2001")
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 1 and 'Mismatch: table "item" is 2001 rows' in errors.splitlines()[-1], errors
    cluster.kill()
    # The directory of a job that is done is for no other.
    cluster, worker = job("done", "async", "2000")
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0, (errors, cluster.log("server-0"))
    assert cluster.end() == 0, cluster.log("controller")
    cluster, worker = job("done", "async", "2000")
    assert cluster.servers[0].wait(timeout=30) == 1
    assert "the job that it is of was done; another job can begin" in cluster.log("server-0")
    worker.kill()
    worker.communicate()


def test_training_goes_on_without_a_switch_and_with_a_server_that_returns(
    tmp_path: Path, plan: Path, clusters: list[Cluster]
) -> None:
    cluster = Cluster(tmp_path, "--log", switches=2)
    clusters.append(cluster)
    environment = {"LIBRA_CONTROLLER": cluster.address, "LIBRA_PLAN": str(plan)}
    workers = [
        start("skewed.py", rank, 2, free_port(), "async", "2000", "300", **environment) for rank in range(2)
    ]
    for worker in workers:
        wait_until_working(worker)
    time.sleep(0.5)
    cluster.switches[0].kill()
    time.sleep(2.0)
    cluster.servers[1].kill()
    cluster.servers[1].wait()
    cluster.servers[1] = cluster.start_server("server-1", True)
    outputs = [worker.communicate(timeout=120) for worker in workers]
    # Each asserts that the sums are those of all workers.
    assert [worker.returncode for worker in workers] == [0, 0], (outputs, cluster.log("controller"))
    assert cluster.end() == 0, cluster.log("controller")
    log = cluster.log("controller")
    # Members are numbered as they come.
    assert re.search(r"server \d (is back|returned)", log), log
    assert re.search(r"switch \d disappeared", log), log


def test_the_controller_learns_of_progress_and_loss(tmp_path: Path, clusters: list[Cluster]) -> None:
    http = f"127.0.0.1:{free_port()}"
    cluster = Cluster(tmp_path, f"--http={http}", servers=1, workers=1)
    clusters.append(cluster)
    worker = start("skewed.py", 0, 1, free_port(), "async", "2000", "150", LIBRA_CONTROLLER=cluster.address)
    wait_until_working(worker)
    progress = {"samples": 0}
    while not progress["samples"]:
        with urllib.request.urlopen(f"http://{http}/status", timeout=10) as answer:
            progress = json.load(answer)["progress"]
    steps, rest = divmod(progress["samples"], 200)
    assert rest == 0 and progress["samples_planned"] == 200 * 150, progress
    assert progress["ratio"] == steps / 150 and progress["loss"] == (steps - 1) / 2, progress
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        metrics = answer.read()
    assert b"libra_controller_progress_ratio{} 0." in metrics and b"libra_controller_loss{} " in metrics, metrics
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0, errors
    assert cluster.end() == 0, cluster.log("controller")


def test_a_terminated_worker_is_watched_and_leaves_after_its_step(tmp_path: Path, clusters: list[Cluster]) -> None:
    cluster = Cluster(tmp_path, servers=1, workers=1)
    clusters.append(cluster)
    events, http = tmp_path / "events.jsonl", f"127.0.0.1:{free_port()}"
    watched = {"LIBRA_CONTROLLER": cluster.address, "LIBRA_EVENTS": str(events), "LIBRA_HTTP": http}
    worker = start("skewed.py", 0, 1, free_port(), "async", "2000", "3000", **watched)
    wait_until_working(worker)
    with urllib.request.urlopen(f"http://{http}/status", timeout=10) as answer:
        status = json.load(answer)
    assert status["role"] == "worker" and status["members"][0]["member"] == "worker 0", status
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        assert b'libra_worker_pushes_total{member="worker 0"}' in answer.read()
    worker.terminate()
    _, errors = worker.communicate(timeout=30)
    assert worker.returncode == 75, errors
    names = [json.loads(line)["event"] for line in events.read_text(encoding="utf-8").splitlines()]
    assert "member_started" in names, names
    assert names[-2:] == ["counts", "member_drained"], names


def test_a_controller_with_a_token_is_named_with_its_variable(tmp_path: Path) -> None:
    binary, token, port = libra_binary(), tmp_path / "token", free_port()
    subprocess.run([binary, "token", f"--out={token}"], check=True)
    sizes = ("--tables=workers", "--workers=1", "--servers=1", "--switches=0")
    command = [binary, "controller", f"--listen=127.0.0.1:{port}", f"--token-file={token}", *sizes]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as controller:
        try:
            worker = start("sums.py", 0, 1, free_port(), "async", "20", LIBRA_CONTROLLER=f"127.0.0.1:{port}")
            _, errors = worker.communicate(timeout=60)
        finally:
            controller.kill()
    assert worker.returncode == 1, errors
    last = errors.splitlines()[-1]
    assert "it speaks TLS, and this end has no token; LIBRA_TOKEN must have the token of the cluster" in last, errors
