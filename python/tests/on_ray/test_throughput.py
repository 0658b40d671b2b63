"""Samples/s of a job on Ray beside the same processes on the same nodes without it, for `cargo xtask ray --rounds N`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import libra_ps.ray
import pytest
from conftest import Nodes

ROUNDS = int(os.environ.get("LIBRA_RAY_ROUNDS", "0"))
JOB = {"epochs": "10", "quiet": "true", "switches": "1", "servers": "2", "workers": "2", "return-max": "120"}
#: Seconds for processes that are started by hand.
JOB_MAX = 300


def on_ray(folder: Path) -> tuple[dict[str, Any], dict[str, str], float]:
    """Returns the report of the job, the node of each member, and the seconds from its start to the first step."""
    path = folder / "job.toml"
    path.write_text("".join(f"{name} = {value}\n" for name, value in JOB.items()))
    begin = time.monotonic()
    job = libra_ps.ray.run(path)
    try:
        while not (job.status()["controller"] or {"progress": {"ratio": 0}})["progress"]["ratio"]:
            time.sleep(0.05)
        first = time.monotonic() - begin
        places = {shown["member"]: shown["node"] for shown in job.status()["members"]}
        return job.wait(JOB_MAX), places, first
    finally:
        job.cancel()


def by_hand(nodes: Nodes, places: dict[str, str], folder: Path) -> dict[str, Any]:
    """Runs the members of a job on the same nodes, with the same options."""
    libra, report, started = os.environ["LIBRA_BINARY"], folder / "by-hand.json", []
    token = subprocess.run([libra, "token"], capture_output=True, text=True, check=True).stdout.strip()
    address = f"{places['controller']}:7799"
    for name, ip in places.items():
        program = [libra, name.partition("-")[0], f"--http={ip}:0"]
        if name == "controller":
            program += [f"--listen={address}", f"--json={report}"]
            program += [f"--{option}" if value == "true" else f"--{option}={value}" for option, value in JOB.items()]
        else:
            program.append(f"--controller={address}")
        inside = ["ip", "netns", "exec", nodes.of(ip).namespace, *program]
        with open(folder / f"{name}.log", "wb") as log:
            started.append(subprocess.Popen(inside, stdout=log, stderr=log, env={**os.environ, "LIBRA_TOKEN": token}))
    assert [process.wait(JOB_MAX) for process in started] == [0] * len(started)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.mark.skipif(not ROUNDS, reason="`cargo xtask ray --rounds 5` measures throughput")
def test_throughput_is_that_of_the_same_processes_by_hand(nodes: Nodes, tmp_path: Path) -> None:
    ratios, firsts = [], []
    for _ in range(ROUNDS):
        report, places, first = on_ray(tmp_path)
        other = by_hand(nodes, places, tmp_path)
        rates = [found["samples"] / found["seconds"]["train"] for found in (report, other)]
        ratios.append(rates[0] / rates[1])
        firsts.append(first)
        print(f"samples/s on Ray {rates[0]:.0f}, by hand {rates[1]:.0f}: {ratios[-1]:.3f}; first step after {first:.1f} s")
    print(f"median of {ROUNDS}: {statistics.median(ratios):.3f} of by hand, first step after {statistics.median(firsts):.1f} s")
    assert statistics.median(ratios) >= 0.97, ratios
    assert statistics.median(firsts) <= 20, firsts
