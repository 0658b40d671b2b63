"""A Ray cluster of three nodes for tests, each in a network namespace, as `cargo xtask ray` makes them.

LIBRA_RAY_NODES names the namespaces and their addresses, as in `node0=10.77.0.1,..`. Tests run in the first, which is the
head of the cluster.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Ray reads these when it is imported: its processes show each other a token, and report nothing to its authors.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0")
ray = pytest.importorskip("ray")
HEAD_PORT = 6379
#: Directory of sessions of Ray. Each node but the head mounts one of its own over it, as other machines have.
SESSIONS = Path(tempfile.mkdtemp(prefix="libra-ray-"))


class Node:
    """A node, whose processes are those of its namespace."""

    def __init__(self, namespace: str, ip: str, head: Node | None) -> None:
        self.namespace, self.ip, self._head = namespace, ip, head

    def start(self, resources: str = '{"libra_switch": 1}', **environment: str) -> None:
        program = [str(Path(sys.executable).parent / "ray"), "start", "--block", f"--node-ip-address={self.ip}"]
        program += ["--num-cpus=3", f"--resources={resources}", "--object-store-memory=80000000", "--disable-usage-stats"]
        if self._head is None:
            program += ["--head", f"--port={HEAD_PORT}", f"--temp-dir={SESSIONS}", "--include-dashboard=false"]
            mount = ""
        else:
            program += [f"--address={self._head.ip}:{HEAD_PORT}"]
            mount = f"mount -t tmpfs libra-ray {SESSIONS};"
        with open(SESSIONS / f"{self.namespace}.log", "ab") as log:
            subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "sh", "-ec", f'{mount} exec "$@"', "sh", *program],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )

    def pids(self, program: str = "") -> set[int]:
        """Returns the processes on the node, or those of a program."""
        listed = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        pids = {int(pid) for pid in listed.stdout.split()} - {os.getpid()}
        return {pid for pid in pids if program in _program(pid)}

    def title(self, pid: int) -> str:
        """Returns the name that a process shows."""
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
        except OSError:
            return ""

    def kill(self, program: str = "") -> None:
        for pid in self.pids(program):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


class Nodes:
    def __init__(self, nodes: list[Node]) -> None:
        self.all = nodes

    def __getitem__(self, index: int) -> Node:
        return self.all[index]

    def of(self, ip: str) -> Node:
        return next(node for node in self.all if node.ip == ip)

    def processes(self) -> set[int]:
        """Returns all processes of the binary."""
        return set().union(*(node.pids("libra") for node in self.all))

    def wait_for(self, count: int) -> None:
        """Waits until so many nodes are alive."""
        deadline = time.monotonic() + 60
        while sum(node["Alive"] for node in ray.nodes()) != count:
            assert time.monotonic() < deadline, ray.nodes()
            time.sleep(0.1)


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Three nodes, with the driver at the first."""
    named = os.environ.get("LIBRA_RAY_NODES")
    if named is None:
        pytest.skip("LIBRA_RAY_NODES names no network namespaces: `cargo xtask ray` makes them")
    made: list[Node] = []
    for namespace, _, ip in (part.partition("=") for part in named.split(",")):
        made.append(Node(namespace, ip, made[0] if made else None))
    nodes = Nodes(made)
    try:
        nodes[0].start()
        connect(nodes)
        for node in made[1:]:
            node.start()
        nodes.wait_for(len(made))
        yield nodes
    finally:
        ray.shutdown()
        for node in reversed(made):
            node.kill()
        shutil.rmtree(SESSIONS, ignore_errors=True)


def connect(nodes: Nodes) -> None:
    os.environ["RAY_ADDRESS"] = f"{nodes[0].ip}:{HEAD_PORT}"
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((nodes[0].ip, HEAD_PORT)).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "the head of the cluster does not listen"
            time.sleep(0.1)
    ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False)
