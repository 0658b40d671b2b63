"""The last line of a run of the tests names those that were skipped."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TESTS = '''
import pytest

def test_with_a_module():
    pytest.importorskip("no_such_module")

def test_with_a_binary():
    pytest.skip("no libra binary: build it with cargo build")

def test_that_runs():
    pass
'''


def test_the_last_line_names_what_was_skipped(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    for options, last in (([], "SKIPPED: no libra binary, no_such_module"), (["-k", "that_runs"], "1 passed")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[-1].startswith(last), done.stdout
