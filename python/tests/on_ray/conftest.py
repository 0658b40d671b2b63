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
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

# Ray reads these when it is imported: its processes show each other a token, report nothing to its authors, and a node that is killed is
# noticed after 2.5 s, when five checks have been refused. One that is only slow has 10 s for each.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0")
os.environ.update(RAY_health_check_period_ms="500", RAY_gcs_server_request_timeout_seconds="10")
ray = pytest.importorskip("ray")
HEAD_PORT = 6379
#: Seconds for a cluster to begin, on processors that others use as well.
START_MAX = 180
#: Directory of sessions of Ray. Each node but the head mounts one of its own over it, as other machines have.
SESSIONS = Path(tempfile.mkdtemp(prefix="libra-ray-"))
#: Names of tests that `-m "not long"` has left out.
LEFT_OUT: list[str] = []


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    LEFT_OUT.extend(item.name for item in items if item.get_closest_marker("long") is not None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """`cargo xtask ray` shows this line."""
    if LEFT_OUT:
        terminalreporter.write_line(f"left out: {', '.join(LEFT_OUT)}")


class Node:
    """A node, whose processes are those of its namespace."""

    def __init__(self, namespace: str, ip: str, head: Node | None) -> None:
        self.namespace, self.ip, self._head = namespace, ip, head
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = [str(Path(sys.executable).parent / "ray"), "start", "--block", f"--node-ip-address={self.ip}"]
        program += ["--num-cpus=3", '--resources={"libra_switch": 1}', "--object-store-memory=80000000", "--disable-usage-stats"]
        if self._head is None:
            program += ["--head", f"--port={HEAD_PORT}", f"--temp-dir={SESSIONS}", "--include-dashboard=false"]
            mount = ""
        else:
            program += [f"--address={self._head.ip}:{HEAD_PORT}"]
            mount = f"mount -t tmpfs libra-ray {SESSIONS};"
        with open(SESSIONS / f"{self.namespace}.log", "ab") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "sh", "-ec", f'{mount} exec "$@"', "sh", *program],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start_again_if_ended(self) -> None:
        """A node of Ray ends when one of its processes takes too long to begin, as on processors that are busy."""
        if self._process is not None and self._process.poll() is not None:
            self.kill()
            self.start()

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
        if not program and self._process is not None:
            self._process.wait()


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


class Nodes:
    def __init__(self, nodes: list[Node]) -> None:
        self.all = nodes
        #: Ids of nodes of Ray that were killed, also if Ray has not noticed that yet.
        self._gone: set[str] = set()

    def __getitem__(self, index: int) -> Node:
        return self.all[index]

    def of(self, ip: str) -> Node:
        return next(node for node in self.all if node.ip == ip)

    def id(self, node: Node) -> str:
        """Returns the id that Ray has given to a node."""
        return next(name for name, ip in self._alive().items() if ip == node.ip)

    def processes(self) -> set[int]:
        """Returns all processes of the binary."""
        return set().union(*(node.pids("libra") for node in self.all))

    def begin_again(self, node: Node) -> None:
        """Kills what is left of a node, and starts it as a new one. A test that needs it waits for it."""
        self._gone |= {name for name, ip in self._alive().items() if ip == node.ip}
        node.kill()
        node.start()

    def wait(self) -> None:
        """Waits until all nodes are alive."""
        deadline = time.monotonic() + START_MAX
        while set(self._alive().values()) != {node.ip for node in self.all}:
            assert time.monotonic() < deadline, ray.nodes()
            time.sleep(0.1)
            for node in self.all[1:]:
                node.start_again_if_ended()

    def _alive(self) -> dict[str, str]:
        alive = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        return {name: ip for name, ip in alive.items() if name not in self._gone}


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
        nodes.wait()
        yield nodes
    finally:
        ray.shutdown()
        for node in reversed(made):
            node.kill()
        shutil.rmtree(SESSIONS, ignore_errors=True)


def connect(nodes: Nodes) -> None:
    """Connects to the head when that is ready."""
    os.environ["RAY_ADDRESS"] = f"{nodes[0].ip}:{HEAD_PORT}"
    deadline = time.monotonic() + START_MAX
    while True:
        try:
            socket.create_connection((nodes[0].ip, HEAD_PORT)).close()
            ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False)
            return
        except OSError:
            assert time.monotonic() < deadline, "the head of the cluster does not answer"
            ray.shutdown()
            time.sleep(0.1)
            nodes[0].start_again_if_ended()
