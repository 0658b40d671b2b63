"""The examples, on small data: each must improve its score, not only end."""

from __future__ import annotations

import copy
import difflib
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
#: A model of some thousand rows, and steps enough to train it.
SMALL = ("--rows=20000", "--rows-max=500", "--batch-size=256", "--lr=0.01")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def run(program: str, *arguments: str, launcher: tuple[str, ...] = ()) -> str:
    done = subprocess.run(
        [sys.executable, *launcher, str(EXAMPLES / program), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def summary(program: str, *arguments: str, launcher: tuple[str, ...] = ()) -> dict[str, Any]:
    lines = run(program, *arguments, "--json", launcher=launcher).splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    assert len(lines) == 1
    return found


@pytest.fixture
def criteo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("criteo")


def test_neumf_differs_from_plain_torch_in_three_lines() -> None:
    def code(name: str) -> list[str]:
        _, _, text = (EXAMPLES / name).read_text().split('"""', 2)
        return text.splitlines()

    lines = difflib.ndiff(code("neumf_torch.py"), code("neumf.py"))
    assert len([line for line in lines if line.startswith("+ ")]) == 3


def test_neumf_trains() -> None:
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", run("neumf.py", "--epochs=2", "--batch-size=512"))]
    assert len(losses) == 2 and losses[-1] < losses[0] - 0.03, losses


@pytest.mark.parametrize("program", ["neumf.py", "neumf_torch.py"])
def test_neumf_names_a_batch_size_of_0(program: str) -> None:
    command = [sys.executable, str(EXAMPLES / program), "--batch-size=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "--batch-size 0 must be at least 1" in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize("dense", ["local", "server"])
def test_neumf_trains_in_two_processes(dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBRA_DENSE", dense)
    output = run("neumf.py", "--epochs=2", "--batch-size=256", launcher=TORCHRUN)
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", output)]
    assert len(losses) == 2 and losses[-1] < losses[0] - 0.02, output


def test_criteo_files_are_read_as_they_were_written(criteo: Any, tmp_path: Path) -> None:
    samples = criteo.synthetic(300, seed=3, categories_max=1000)
    criteo.write(tmp_path / "samples.txt", samples)
    read = criteo.read(tmp_path / "samples.txt", 250)
    assert all(torch.equal(found, part[:250]) for found, part in zip(read, samples))
    batch = criteo.prepare(read, criteo.table_rows(100))
    assert int(batch.ids.min()) == 0 and int(batch.ids.max()) == 99
    assert torch.equal(batch.ids == 0, read.categories == criteo.MISSING)
    (tmp_path / "bad.txt").write_text("0\t1\t2\n")
    with pytest.raises(SystemExit, match="bad.txt:1: 3 fields"):
        criteo.read(tmp_path / "bad.txt", 250)


def test_auc_is_the_share_of_pairs_in_order(criteo: Any) -> None:
    draw = torch.Generator().manual_seed(1)
    scores = torch.randint(20, (200,), generator=draw).float()
    labels = torch.randint(2, (200,), generator=draw).float()
    pairs = scores[labels == 1][:, None] - scores[labels == 0]
    share = ((pairs > 0).double() + (pairs == 0).double() / 2).mean()
    assert abs(criteo.auc(scores, labels) - float(share)) < 1e-12


@pytest.fixture(scope="module")
def plain_auc() -> float:
    found = summary("dlrm_torch.py", *SMALL)
    assert found["auc"] > found["auc_before"] + 0.15
    return float(found["auc"])


@pytest.mark.parametrize(("mode", "tolerance"), [("sync", 5e-4), ("async", 0.01)])
def test_dlrm_is_as_good_as_plain_torch(plain_auc: float, mode: str, tolerance: float) -> None:
    found = summary("dlrm.py", *SMALL, f"--mode={mode}", "--initial=torch")
    assert abs(found["auc"] - plain_auc) <= tolerance


@pytest.mark.parametrize(("mode", "dense", "initial"), [("sync", "local", "server"), ("async", "server", "torch")])
def test_dlrm_trains_on_two_workers(
    plain_auc: float, mode: str, dense: str, initial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBRA_DENSE", dense)
    found = summary("dlrm.py", *SMALL, f"--mode={mode}", f"--initial={initial}", launcher=TORCHRUN)
    assert found["workers"] == 2 and abs(found["auc"] - plain_auc) <= 0.02


def test_dlrm_reads_a_file(criteo: Any, tmp_path: Path) -> None:
    criteo.write(tmp_path / "samples.txt", criteo.synthetic(3000, categories_max=100))
    text = run("dlrm.py", f"--data={tmp_path / 'samples.txt'}", "--rows-max=101", "--batch-size=64", "--lr=0.05")
    after, before = map(float, re.findall(r"0\.\d{4}", text)[:2])
    assert after > before + 0.1, text


@pytest.mark.parametrize("launcher", [(), TORCHRUN])
def test_two_tower_retrieves(launcher: tuple[str, ...]) -> None:
    found = summary("two_tower.py", "--epochs=4", launcher=launcher)
    assert found["workers"] == (2 if launcher else 1)
    assert found["recall_before"] < 0.1 and found["recall"] > 0.4, found


def test_word2vec_finds_the_topics() -> None:
    found = summary("word2vec.py", "--words=60000", "--near", "topic3-0", "topic4-1")
    assert found["score_before"] == 0.5 and found["score"] > 0.6, found
    topics = [other.split("-")[0] == word.split("-")[0] for word, others in found["near"].items() for other in others]
    assert sum(topics) >= 8, found["near"]


def test_word2vec_reads_a_text(tmp_path: Path) -> None:
    sentences = ("the cat sat on the mat\n", "stocks and bonds fell in trading\n")
    (tmp_path / "text.txt").write_text("".join(sentences[number // 20 % 2] for number in range(2000)))
    found = summary("word2vec.py", f"--data={tmp_path / 'text.txt'}", "--batch-size=64", "--subsample=1", "--near", "cat")
    assert found["words"] == 11 and found["score"] > 0.6, found
    assert set(found["near"]["cat"][:3]) < {"the", "sat", "on", "mat"}


@pytest.mark.parametrize("name", ["first_steps", "hot_rows"])
def test_cells_of_notebooks_run_twice(name: str, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "notebooks" / f"{name}.ipynb", 4)
    cells = notebook.cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), "a notebook is stored with outputs"
    notebook.cells = cells + copy.deepcopy(cells)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    printed = ["".join(output.get("text", "") for output in cell.get("outputs", [])) for cell in notebook.cells]
    first, second = "".join(printed[: len(cells)]), "".join(printed[len(cells) :])
    if name == "first_steps":
        lines = [re.findall(r"^0\.\d+(?: 0\.\d+)+$", text, re.MULTILINE)[0] for text in (first, second)]
        losses = [[float(loss) for loss in line.split()] for line in lines]
        # Tables keep their rows, so a second run continues.
        assert losses[0][-1] < losses[0][0] / 2 and losses[1][0] < losses[0][0] / 2
    else:
        assert all(re.search(r"rows are hot, and take [5-9]\d\.\d% of the updates", text) for text in (first, second))
