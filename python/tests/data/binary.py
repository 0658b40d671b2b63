"""The binary `libra`, which these tests run."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def libra(*arguments: str) -> None:
    """Runs it to its end."""
    found = os.environ.get("LIBRA_BINARY") or shutil.which("libra")
    if not found:
        pytest.skip("no libra binary: build it with cargo build, and name it in LIBRA_BINARY")
    done = subprocess.run([found, *arguments, "--quiet"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
