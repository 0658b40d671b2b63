"""Clusters on Ray whose workers are programs in Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import libra_ps.ray
import pytest
import ray
from conftest import Nodes

EXAMPLES = Path(__file__).parents[3] / "examples/python"


@ray.remote(num_cpus=1)
def push_ones() -> float:
    """Pushes ones as a worker of the cluster in its environment, and returns the sum of all workers."""
    import libra_ps as libra
    from libra_ps.tables import Rule

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


def test_ray_train_runs_dlrm(nodes: Nodes, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("ray.train.torch", exc_type=ImportError)
    program = [sys.executable, str(EXAMPLES / "dlrm_ray.py"), f"--storage={tmp_path}", "--rows=60000", "--json"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in (done.stdout + done.stderr).splitlines() if '"auc"' in line)
    summary = json.loads(line[line.index("{") :])
    assert summary["workers"] == 2
    assert summary["auc"] > summary["auc_before"] + 0.1, summary
    assert not nodes.processes()
