"""Each benchmark, with sizes that take no time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from libra_ps.bench.__main__ import main
from libra_ps.bench.runs import RUNS


@pytest.mark.parametrize("what", [what for what in RUNS if what != "processes"])
def test_benchmarks_run_and_fit_a_terminal(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    threads = torch.get_num_threads()
    arguments = [what, "--turns", "1", "--seconds", "0.01", "--threads", "1", "--divide", "64", "--json", str(path)]
    try:
        assert main(arguments) == 0
    finally:
        torch.set_num_threads(threads)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 100
    results = json.loads(path.read_text())["results"]
    assert any("goal" in result for result in results)


def test_processes_are_compared_under_torchrun(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    arguments = ["processes", "--turns", "1", "--seconds", "0.01", "--divide", "64", "--no-sparse", "--json", str(path)]
    assert main(arguments) == 0
    (steps, *goals) = json.loads(path.read_text())["results"]
    assert set(steps["seconds_by_turn"]) == {"torch dense", "libra async, dense ddp"}
    assert len(goals) == 1
