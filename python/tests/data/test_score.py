"""The example that scores rows with an export finds what training found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from binary import libra

pa = pytest.importorskip("pyarrow", reason="no pyarrow: `pip install pyarrow`")
import numpy as np  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

SCORE = Path(__file__).parents[3] / "examples/python/score.py"


def score(export: Path, data: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCORE), f"--export={export}", f"--data={data}", "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def scored(export: Path, data: Path | str) -> dict[str, float]:
    done = score(export, data)
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
        for place in (f"{data}/part-*.parquet", data.as_uri()):
            assert scored(tmp_path / str(number), place) == found
    assert scored(tmp_path / "0", data / "part-00010.parquet")["rows"] < 2_000


def test_lists_of_ids_are_scored_as_training_did(tmp_path: Path) -> None:
    draw, rows = np.random.default_rng(5), 20_000
    tags = [draw.integers(50, size=count).tolist() if count else None for count in draw.integers(5, size=rows)]
    logits = np.array([np.mean([tag % 7 - 3 for tag in row]) if row else 0.0 for row in tags])
    data, state, report = tmp_path / "data", tmp_path / "state", tmp_path / "report.json"
    data.mkdir()
    columns = {"clicked": (draw.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.int64), "tags": tags, "price": draw.random(rows)}
    pq.write_table(pa.table(columns), data / "part.parquet", row_group_size=3000)
    (data / "dataset.toml").write_text('keys = "hashed"\nlabel = "clicked"\nnumbers = ["price"]\ncategories = ["tags"]\n')
    libra("train", "--model=deeplight", "--batch=200", "--epochs=2", f"--data={data}", f"--state-dir={state}", f"--json={report}")
    libra("export", f"--from={state}", f"--to={tmp_path}/export")
    quality, found = json.loads(report.read_text())["quality"], scored(tmp_path / "export", data)
    assert quality["auc"] > 0.7 and abs(found["auc"] - quality["auc"]) < 2e-3, (found, quality)


def test_the_reader_of_the_checkout_is_taken_without_the_package() -> None:
    # No site-packages of the package: a module of the same name that cannot be found.
    program = f"""
import sys
sys.modules["libra_ps"] = None
sys.argv = ["score.py", "--export=no-such-directory", "--data=no-such-directory"]
sys.path.insert(0, {str(SCORE.parent)!r})
import score
assert score.serve.__name__ == "libra_ps_serve" and score.serve.Export
score.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "score.py: no-such-directory: there is no such file or directory\n", done.stderr


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("nowhere", "nowhere: there is no such file or directory"),
        ("empty", "there is no Parquet file"),
        ("texts", "train.txt is no Parquet file, which is all that score.py reads: libra data convert"),
        ("files/part.parquet", "has no column label; a dataset.toml beside it names the columns"),
        ("files/*.gz", "there is no Parquet file"),
        ("broken", "Parquet"),
        ("zzz://bucket/clicks", "zzz://bucket/clicks"),
        ("described", "no-export has no export: current.json"),
    ],
)
def test_places_that_cannot_be_scored_are_named_in_one_line(tmp_path: Path, data: str, text: str) -> None:
    for folder in ("empty", "texts", "files", "broken", "described"):
        (tmp_path / folder).mkdir()
    (tmp_path / "texts" / "train.txt").write_text("0\t1\n")
    (tmp_path / "broken" / "part.parquet").write_text("no Parquet")
    for folder in ("files", "described"):
        pq.write_table(pa.table({"clicked": [0, 1]}), tmp_path / folder / "part.parquet")
    (tmp_path / "described" / "dataset.toml").write_text('label = "clicked"\n')
    done = score(tmp_path / "no-export", data if "://" in data else str(tmp_path / data))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("score.py: ") and text in done.stderr, done.stderr
