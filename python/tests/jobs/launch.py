"""Jobs of several processes for tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def torchrun(program: str, *arguments: str, workers: int = 2, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    return subprocess.run(
        [*command, str(PROGRAMS / program), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )


def start(
    program: str, rank: int, workers: int, port: int, *arguments: str, **more: str
) -> subprocess.Popen[str]:
    """Starts one process of a job without torchrun."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "LIBRA_PORT": str(port),
        **more,
    }
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
