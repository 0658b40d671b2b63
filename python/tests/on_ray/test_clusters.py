"""Clusters on Ray whose workers are programs in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import libra_ps.ray
import pytest
import ray
from conftest import Node, Nodes

EXAMPLES = Path(__file__).parents[3] / "examples/python"
#: Samples of DLRM.
ROWS = int(os.environ.get("LIBRA_RAY_ROWS", "100000"))
#: Runs by hand of 100,000 samples differ by as much as 0.006: a row is updated for one worker after the other, in any order.
AUC_SPREAD = 0.01 if ROWS < 1_000_000 else 0.002
#: Seconds of such a run, on processors that another one uses as well.
RUN_MAX = 200 + ROWS // 2000
PREPARE = Path(__file__).parents[3] / "deploy/ray/prepare.py"


@ray.remote(num_cpus=1)
def push_ones() -> float:
    """Pushes ones as a worker of the cluster in its environment, and returns the sum of all workers."""
    import libra_ps as libra
    from libra_ps.definitions import Rule

    session = libra.init(mode="sync", timeout=60)
    client = libra.Client()
    client.add_table("a", 100, 2, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
    for _ in range(10):
        client.pull("a", [7])
        client.push("a", [7], [[1.0, 1.0]])
        client.tick()
    client.flush()
    client.barrier()
    found = float(client.pull("a", [7])[0, 0])
    assert session.workers == 2
    libra.shutdown()
    return found


def test_tasks_of_ray_are_workers(nodes: Nodes) -> None:
    with libra_ps.ray.cluster(servers=2, workers=2) as cluster:
        rank = {rank: {**cluster.environment, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)}
        tasks = [push_ones.options(runtime_env={"env_vars": rank[number]}).remote() for number in range(2)]
        assert ray.get(tasks, timeout=120) == [-20.0, -20.0]
    assert not nodes.processes()


def test_an_error_of_a_worker_ends_the_cluster(nodes: Nodes) -> None:
    with pytest.raises(ZeroDivisionError), libra_ps.ray.cluster(servers=1, workers=1) as cluster:
        assert len(nodes.processes()) == 2
        assert cluster.status()["controller"]["phase"] == "gathering"
        raise ZeroDivisionError
    assert not nodes.processes()


def run(*command: str, **environment: str) -> str:
    """Runs a program to its end; returns what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def auc(printed: str) -> float:
    line = next(line for line in printed.splitlines() if '"auc"' in line)
    summary = json.loads(line[line.index("{") :])
    assert (summary["workers"], summary["mode"]) == (2, "sync")
    assert summary["auc"] > summary["auc_before"] + 0.1, summary
    return float(summary["auc"])


def bystander(nodes: Nodes) -> Node | None:
    """A node with members of the cluster, but without the driver and processes of Ray Train."""
    for node in nodes.all[1:]:
        if node.pids("libra") and not any("Train" in node.title(pid) for pid in node.pids()):
            return node
    return None


def node_of_workers(nodes: Nodes) -> Node | None:
    """A node with a worker of Ray Train, but without the driver and the controller of Ray Train."""
    for node in nodes.all[1:]:
        titles = [node.title(pid) for pid in node.pids()]
        if any("TrainWorker" in title for title in titles) and not any("TrainController" in title for title in titles):
            return node
    return None


def counted(address: str, kind: str, count: str) -> int:
    """Returns a count of all members of a kind, from the status of the controller."""
    with urllib.request.urlopen(f"http://{address}/status", timeout=5) as answer:
        members = json.load(answer)["members"]
    return sum(shown["counts"][kind][count] for shown in members if shown["kind"] == kind and shown["counts"])


@pytest.mark.long
def test_dlrm_loses_a_node_and_is_as_good_as_by_hand(nodes: Nodes, tmp_path: Path) -> None:
    """The same program alone, under torchrun and in Ray Train. There a raylet is killed, under a server or the switch."""
    pytest.importorskip("torch")
    pytest.importorskip("ray.train.torch", exc_type=ImportError)
    options, plan = [f"--rows={ROWS}", "--mode=sync", "--json"], str(tmp_path / "plan.toml")
    dlrm = str(EXAMPLES / "dlrm.py")
    run(sys.executable, dlrm, "--rows=20000", LIBRA_PROFILE=plan)
    by_hand = tmp_path / "by-hand"
    with by_hand.open("wb") as file:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", dlrm, *options]
        # It runs meanwhile.
        other = subprocess.Popen(torchrun, stdout=file, stderr=file)

    program = [sys.executable, str(EXAMPLES / "dlrm_ray.py"), f"--storage={tmp_path}", "--switches=1", *options]
    log, lost = tmp_path / "log", None
    with log.open("wb") as file:
        driver = subprocess.Popen(program, stdout=file, stderr=file, env={**os.environ, "LIBRA_PLAN": plan})
    try:
        address = http_address(driver, log)
        until(lambda: counted(address, "switch", "packets") > 0, driver, log)
        lost = bystander(nodes)
        assert lost is not None, [[node.title(pid) for pid in node.pids()] for node in nodes.all]
        lost.kill("raylet")
        assert driver.wait(RUN_MAX) == 0, log.read_text()[-3000:]
        printed = log.read_text()
        assert "it is started again" in printed
        assert other.wait(RUN_MAX) == 0, by_hand.read_text()[-3000:]
        found, expected = auc(printed), auc(by_hand.read_text())
        print(f"AUC by hand {expected:.4f}, in Ray {found:.4f}")
        assert abs(found - expected) <= AUC_SPREAD
    finally:
        for started in (driver, other):
            started.kill()
            started.wait()
        if lost is not None:
            nodes.begin_again(lost)
    assert not nodes.processes()


@pytest.mark.long
def test_dlrm_loses_a_node_of_its_workers_and_begins_again(nodes: Nodes, tmp_path: Path) -> None:
    """Ray Train starts other workers, which join the same cluster and train its rows on."""
    pytest.importorskip("torch")
    pytest.importorskip("ray.train.torch", exc_type=ImportError)
    program = [sys.executable, str(EXAMPLES / "dlrm_ray.py"), f"--storage={tmp_path}", "--servers=1", "--spread"]
    log, lost = tmp_path / "log", None
    with log.open("wb") as file:
        program += ["--max-failures=1", "--rows=100000", "--mode=sync", "--json"]
        driver = subprocess.Popen(program, stdout=file, stderr=file, env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"})
    try:
        address = http_address(driver, log)
        until(lambda: counted(address, "worker", "pushes") > 0, driver, log)
        lost = node_of_workers(nodes)
        assert lost is not None, [[node.title(pid) for pid in node.pids()] for node in nodes.all]
        # With its workers, which would go on to the end without their raylet.
        lost.kill()
        assert driver.wait(RUN_MAX) == 0, log.read_text()[-3000:]
        printed = log.read_text()
        assert "worker 0 disappeared" in printed and "worker 1 disappeared" in printed
        auc(printed)
    finally:
        driver.kill()
        driver.wait()
        if lost is not None:
            nodes.begin_again(lost)
    assert not nodes.processes()


def until(holds: Callable[[], bool], driver: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert driver.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


def http_address(driver: subprocess.Popen[bytes], log: Path) -> str:
    """Returns where the controller of `dlrm_ray.py` answers, once it has printed that."""
    until(lambda: "libra top --http " in log.read_text(), driver, log)
    return log.read_text().partition("libra top --http ")[2].split()[0]


@pytest.mark.long
def test_raw_logs_become_shuffled_data(nodes: Nodes, tmp_path: Path) -> None:
    libra, data = os.environ["LIBRA_BINARY"], tmp_path / "data"
    run(libra, "data", "make", "--rows=20000", "--format=gzip", "--files=2", f"--to={tmp_path}/logs")
    prepare = (sys.executable, str(PREPARE), f"{tmp_path}/logs/*.gz", f"--to={data}")
    run(*prepare)
    run(libra, "data", "check", str(data), f"--json={tmp_path}/check.json")
    assert json.loads((tmp_path / "check.json").read_text())["rows"] == 20_000
    again = subprocess.run(prepare, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 1 and f"{data} is there already: name a new place with --to" in again.stderr
