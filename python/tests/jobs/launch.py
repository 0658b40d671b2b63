"""Jobs of several processes for tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def torchrun(
    program: str, *arguments: str, workers: int = 2, restarts: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    return subprocess.run(
        [*command, f"--max-restarts={restarts}", str(PROGRAMS / program), *arguments],
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


def libra_binary() -> str:
    """Returns the path of `libra`, or skips the test."""
    found = os.environ.get("LIBRA_BINARY") or shutil.which("libra")
    if found is None:
        pytest.skip("no libra binary: build it with cargo build, and name it in LIBRA_BINARY")
    return found


class Cluster:
    """A controller, servers and switches of the binary, each a process."""

    def __init__(self, folder: Path, *options: str, servers: int = 2, switches: int = 0, workers: int | str = 2) -> None:
        self._binary = libra_binary()
        self._folder = folder
        self.port = free_port()
        sizes = (f"--servers={servers}", f"--switches={switches}", f"--workers={workers}")
        listen = f"--listen=127.0.0.1:{self.port}"
        self.controller = self._start("controller", "controller", listen, "--tables=workers", *sizes, *options)
        self._wait_for("controller", "waiting for")
        has_disk = "--log" in options
        self.servers = [self.start_server(f"server-{number}", has_disk) for number in range(servers)]
        self.switches = [self.start_switch(f"switch-{number}") for number in range(switches)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start_server(self, name: str, has_disk: bool) -> subprocess.Popen[str]:
        disk = (f"--state-dir={self._folder / name}",) if has_disk else ()
        return self._start(name, "server", f"--controller={self.address}", *disk)

    def start_switch(self, name: str) -> subprocess.Popen[str]:
        return self._start(name, "switch", f"--controller={self.address}")

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(encoding="utf-8")

    def _start(self, name: str, *command: str) -> subprocess.Popen[str]:
        with open(self._folder / f"{name}.log", "a", encoding="utf-8") as log:
            return subprocess.Popen([self._binary, *command], stdout=log, stderr=log, text=True)

    def _wait_for(self, name: str, text: str) -> None:
        for _ in range(200):
            if text in self.log(name):
                return
            time.sleep(0.05)
        raise AssertionError(f"{name}: {self.log(name)}")

    def end(self) -> int:
        """Waits for the end of the job, and returns the exit status of the controller."""
        status = self.controller.wait(timeout=60)
        for member in (*self.servers, *self.switches):
            member.wait(timeout=30)
        return status

    def kill(self) -> None:
        """Ends what is still there."""
        for member in (self.controller, *self.servers, *self.switches):
            if member.poll() is None:
                member.kill()
                member.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
