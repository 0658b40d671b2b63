"""The binary `libra`, which these tests run."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, whatever that is."""
    found = os.environ.get("LIBRA_BINARY") or shutil.which("libra")
    if not found:
        pytest.skip("no libra binary: build it with cargo build, and name it in LIBRA_BINARY")
    return subprocess.run([found, *arguments, "--quiet"], capture_output=True, text=True, check=False)


def libra(*arguments: str) -> None:
    """Runs it to its end, which is a good one."""
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
