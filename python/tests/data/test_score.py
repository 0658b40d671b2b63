"""The example that scores rows with an export finds what training found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from binary import libra

pytest.importorskip("pyarrow", reason="no pyarrow: `pip install pyarrow`")
SCORE = Path(__file__).parents[3] / "examples/python/score.py"


def scored(export: Path, data: Path) -> dict[str, float]:
    command = [sys.executable, str(SCORE), f"--export={export}", f"--data={data}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, float] = json.loads(done.stdout)
    return result


def test_an_export_scores_rows_as_training_did(tmp_path: Path) -> None:
    data, state, report = tmp_path / "data", tmp_path / "state", tmp_path / "report.json"
    libra("data", "make", "--rows=60000", "--files=11", f"--to={data}")
    options = ["--model=deeplight", "--batch=500", "--epochs=1"]
    libra("train", *options, f"--data={data}", f"--state-dir={state}", f"--json={report}")
    quality = json.loads(report.read_text())["quality"]
    assert quality["auc"] > 0.6, "it learns"
    for number, form in enumerate(["f32", "bf16"]):
        libra("export", f"--from={state}", f"--to={tmp_path}/{number}", f"--format={form}")
        found = scored(tmp_path / str(number), data)
        assert found["rows"] == 12_000
        # A row that no gradient has touched is 0 in an export, and close to that in training.
        assert abs(found["auc"] - quality["auc"]) < 2e-3, (form, found, quality)
