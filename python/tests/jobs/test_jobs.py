"""Jobs of several processes on this machine."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest
from launch import free_port, start, torchrun

pytest.importorskip("torch")


def packets_of_switches(log: str) -> int:
    line = next(line for line in log.splitlines() if "packets added by switches:" in line)
    return int(line.split()[-1])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_workers_train_as_one_with_both_batches(accumulate: int) -> None:
    steps = 200 if accumulate == 1 else 30
    done = torchrun("twin.py", f"--steps={steps}", f"--accumulate={accumulate}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert float(done.stdout.split()[-1]) < 1e-5


def test_two_workers_with_a_switch_train_as_one_with_both_batches(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    alone = torchrun("twin.py", "--steps=20", workers=1, LIBRA_PROFILE=str(plan))
    assert alone.returncode == 0, alone.stderr[-3000:]
    done = torchrun("twin.py", "--events", LIBRA_SWITCHES="1", LIBRA_PLAN=str(plan))
    assert done.returncode == 0, done.stderr[-3000:]
    assert packets_of_switches(done.stderr) > 0
    assert float(done.stdout.split()[-1]) < 1e-3


def test_replicas_stay_equal_when_gradients_are_clipped() -> None:
    done = torchrun("twin.py", "--steps=20", "--clip=0.05")
    assert done.returncode == 0, done.stderr[-3000:]


def test_workers_skip_the_step_in_which_one_has_an_infinite_gradient() -> None:
    done = torchrun("scaler.py")
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("done")) == ["done 0", "done 1"]


def test_unused_parameters_cannot_be_accumulated() -> None:
    done = torchrun("scaler.py", "unused")
    assert done.returncode != 0
    assert "find_unused_parameters=True with no_sync()" in done.stderr, done.stderr[-3000:]


@pytest.mark.parametrize("mode", ["async", "ssp", "sync"])
def test_sums_are_those_of_all_workers(mode: str) -> None:
    done = torchrun("sums.py", mode)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("done")) == ["done 0", "done 1"]


def test_hot_rows_go_through_a_switch(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    alone = start("skewed.py", 0, 1, free_port(), "sync", "2000", LIBRA_PROFILE=str(plan))
    _, errors = alone.communicate(timeout=60)
    assert alone.returncode == 0 and f"the plan of this run is {plan}" in errors, errors
    for mode in ("async", "sync"):
        done = torchrun("skewed.py", mode, "2000", LIBRA_SWITCHES="1", LIBRA_PLAN=str(plan))
        assert done.returncode == 0, done.stderr[-3000:]
        assert packets_of_switches(done.stderr) > 0
    other = start("skewed.py", 0, 2, free_port(), "async", "2001", LIBRA_SWITCHES="1", LIBRA_PLAN=str(plan))
    _, errors = other.communicate(timeout=60)
    assert other.returncode == 1 and "ValueError: the plan cannot be used" in errors.splitlines()[-1], errors


def test_others_finish_when_a_worker_is_killed() -> None:
    port = free_port()
    jobs = [start("sums.py", rank, 3, port, "async", "dies") for rank in range(3)]
    outputs = [job.communicate(timeout=120) for job in jobs]
    assert [job.returncode for job in jobs] == [0, -9, 0], outputs
    assert "done 0" in outputs[0][0] and "done 2" in outputs[2][0]


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("pushes", 75, "libra_ps: pushes of this worker are lost: the job ended: no connection to the controller"),
        ("flushes", 75, "libra_ps.errors.ClusterEnded: the job ended: no connection to the controller"),
        ("raises", 1, "ValueError: an error of the program"),
    ],
)
def test_a_worker_that_has_lost_its_cluster_exits_with_75(how: str, code: int, text: str) -> None:
    port = free_port()
    host, worker = (start("lost.py", rank, 2, port, how) for rank in range(2))
    try:
        for job in (host, worker):
            assert job.stdout is not None and job.stdout.readline() == "working\n"
    finally:
        host.kill()
        killed_at = time.monotonic()
        host.communicate(timeout=30)
        output, errors = worker.communicate(timeout=60)
    assert output == "pushed\n" and worker.returncode == code, (worker.returncode, errors)
    assert errors.splitlines()[-1].startswith(text), errors
    # It has looked for the controller for 5 to 10 s, which cannot come back.
    assert time.monotonic() - killed_at < 20


def test_a_job_that_torchrun_restarts_goes_on_from_its_save(tmp_path: Path) -> None:
    done = torchrun("restart.py", str(tmp_path), restarts=1)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("done")) == ["done 0", "done 1"]


def test_a_worker_joins_a_cluster_that_runs() -> None:
    host = start("sums.py", 0, 2, free_port(), "sync")
    assert host.stderr is not None
    address = next(line.split()[-1] for line in host.stderr if "the controller listens at" in line)
    worker = start("sums.py", 1, 2, free_port(), "sync", LIBRA_CONTROLLER=address)
    outputs = [job.communicate(timeout=120) for job in (host, worker)]
    assert (host.returncode, worker.returncode) == (0, 0), outputs
    assert "done 0" in outputs[0][0] and "done 1" in outputs[1][0]


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("other", 'Mismatch: table "a" is 1000 rows of width 3'),
        ("admits", r'Mismatch: table "rare" has the rule .*updates: 4, .* here, and .*updates: 3, .* in the job'),
    ],
)
def test_workers_with_other_tables_are_refused(how: str, text: str) -> None:
    port = free_port()
    jobs = [start("sums.py", rank, 2, port, "async", how) for rank in range(2)]
    outputs = [job.communicate(timeout=120) for job in jobs]
    assert all(job.returncode == 1 for job in jobs), outputs
    assert re.search(text, outputs[1][1]), outputs[1][1]
    assert "ClusterEnded" in outputs[0][1] and "a worker has another job" in outputs[0][1]


def test_workers_that_do_not_come_are_a_timeout() -> None:
    port = free_port()
    job = start("sums.py", 0, 2, port, "async", "3")
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "libra_ps.errors.TimeoutError: the cluster at 127.0.0.1:" in errors and "fewer workers have come" in errors
    job = start("sums.py", 1, 2, free_port(), "async", "3")
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 1 and "ClusterEnded" in errors.splitlines()[-1], errors


def test_dense_parameters_without_ddp_are_refused() -> None:
    done = torchrun("undecided.py")
    assert done.returncode != 0
    assert "nothing keeps their dense parameters equal" in done.stderr


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        job = start("sums.py", 0, 2, port, "async", "3")
        _, errors = job.communicate(timeout=60)
    assert job.returncode == 1
    assert f"ClusterEnded: port {port} of 127.0.0.1" in errors and "LIBRA_PORT chooses another" in errors, errors
