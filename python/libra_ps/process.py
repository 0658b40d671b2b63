"""Processes of the binary `libra` on the nodes of a Ray cluster, and the actors that run them."""

from __future__ import annotations

import collections
import contextlib
import importlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import __version__
from .errors import JobFailed

#: Exit code of a process that asks to be started again.
AGAIN = 75
#: Seconds before a process that has ended is started again, at first.
BACKOFF = 0.2
#: Last lines of a process, among which its reason is.
LINES = 20


@dataclass(frozen=True)
class Command:
    """A process to start."""

    role: str
    binary: str
    #: Text of its configuration, and the file that it is from.
    config: str
    file: str
    arguments: tuple[str, ...]
    #: Options that the configuration does not have.
    environment: Mapping[str, str]
    ports: str
    cwd: str | None
    #: Versions that the node must have.
    versions: str


@dataclass(frozen=True)
class About:
    """The node of an actor, and the versions that it has; or the reason why nothing runs there."""

    node: str
    ip: str
    versions: str
    failure: str | None = None


@dataclass(frozen=True)
class Ended:
    """End of a process on a node: its exit code, or the negative number of a signal."""

    code: int
    reason: str
    ip: str | None


class Process:
    """Runs the process of a member; an actor."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ip: str = _ray().util.get_node_ip_address()
        self._running: subprocess.Popen[bytes] | None = None
        #: Guards the start of a process, which a signal that comes before it prevents.
        self._lock = threading.Lock()
        self._is_asked_to_end = False

    def __repr__(self) -> str:
        return self._name

    def about(self, binary: str) -> About:
        """Returns the node and its versions."""
        node = _ray().get_runtime_context().get_node_id()
        try:
            printed = subprocess.run([_binary(binary), "--version"], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            failure = (
                f"there is no program `{_binary(binary)}` ({error}): install it in PATH, or name it in LIBRA_BINARY of the node "
                "or as `binary` in [ray]"
            )
            return About(node, self._ip, "", failure)
        return About(node, self._ip, f"{printed.stdout.strip()}, libra-ps {__version__}")

    def free_ports(self, ports: str, count: int) -> list[int]:
        """Returns ports of the node that were free a moment ago."""
        return _free_ports(self._ip, ports, count)

    def pid(self) -> int | None:
        """Returns the id of the process, if it runs."""
        running = self._running
        return running.pid if running is not None and running.poll() is None else None

    def run(self, command: Command) -> Ended:
        """Runs the process to its end. It dies with this actor; what it prints is in the log of this actor."""
        self._is_asked_to_end = False
        about = self.about(command.binary)
        if about.versions != command.versions:
            other = f"it has {about.versions}, and the controller {command.versions}: all nodes need the same"
            return Ended(1, about.failure or other, self._ip)
        with tempfile.TemporaryDirectory(prefix="libra-") as folder:
            config = Path(folder, "job.toml")
            config.write_text(command.config.replace("{member}", self._name), encoding="utf-8")
            # Its input ends with this actor, however that ends.
            program = [_binary(command.binary), command.role, "--exit-with-parent", "--config", str(config), *command.arguments]
            environment = {**os.environ, "LIBRA_HTTP": f"{self._ip}:0", **command.environment}
            try:
                if command.ports and command.role in ("server", "switch"):
                    program += ["--listen", f"{self._ip}:{_free_ports(self._ip, command.ports, 1)[0]}"]
                with self._lock:
                    if self._is_asked_to_end:
                        return Ended(AGAIN, "it was asked to end before it began", self._ip)
                    # Nothing runs in the child before the program: locks of threads of Ray may be held there for ever.
                    running = self._running = subprocess.Popen(
                        program,
                        stdin=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        env=environment,
                        cwd=command.cwd,
                    )
            except (OSError, JobFailed) as error:
                return Ended(1, str(error), self._ip)
            printed: collections.deque[str] = collections.deque(maxlen=LINES)
            assert running.stdin is not None and running.stderr is not None
            with running.stdin:
                for line in running.stderr:
                    sys.stderr.buffer.write(line)
                    sys.stderr.flush()
                    printed.append(line.decode(errors="replace").rstrip())
                code = running.wait()
        ended = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        told = _reason(printed).replace(str(config), command.file) if code > 0 else ""
        return Ended(code, f"{told} ({ended})" if told else ended, self._ip)

    def terminate(self) -> None:
        """Asks the process to end in order."""
        with self._lock:
            self._is_asked_to_end = True
            if self._running is not None:
                self._running.terminate()

    def kill(self) -> None:
        """Kills the process, and waits until it is gone."""
        with self._lock:
            self._is_asked_to_end = True
            if self._running is not None:
                self._running.kill()
                self._running.wait()


@dataclass
class Member:
    """A member of the cluster, as the driver knows it."""

    role: str
    index: int
    #: Its bundle in the placement group. None for the controller, for workers beyond the least number, and for one that has left a node that
    #: Ray drains.
    bundle: int | None = None
    #: It runs, is away until it is started again, or is done.
    state: str = "waiting"
    #: It is started again when it has asked for that.
    wanted: bool = True
    #: It was asked to leave a node that Ray drains.
    leaves: bool = False
    starts: int = 0
    actor: Any = None
    #: The actor's answers: its place, and the end of its process.
    placed: Any = None
    pending: Any = None
    about: About | None = None
    last: Ended | None = None
    began: float = 0.0
    #: Time at which the next line says that it waits for a node.
    tell_at: float = 0.0
    delay: float = BACKOFF

    @property
    def name(self) -> str:
        return self.role if self.role == "controller" else f"{self.role}-{self.index}"

    def told(self, ended: Ended, reason: str | None = None) -> str:
        """Returns the line about an end."""
        on = f" on node {ended.ip}" if ended.ip is not None else ""
        return f"{self.name}{on}: {reason or ended.reason}"


def _reason(printed: Sequence[str]) -> str:
    """Returns the reason that a process has given with its last lines: an error of its command line, or the last of them."""
    for number, line in enumerate(printed):
        if line.startswith("error: "):
            more = itertools.takewhile(lambda line: line.startswith(" "), itertools.islice(printed, number + 1, None))
            return " ".join([line.removeprefix("error: "), *map(str.strip, more)])
    return next(filter(None, reversed(printed)), "").strip().removeprefix("libra: ")


def new_token(named: str) -> str:
    """Returns a token for a cluster."""
    return subprocess.run([_binary(named), "token"], capture_output=True, text=True, check=True).stdout.strip()


def _binary(named: str) -> str:
    return named or os.environ.get("LIBRA_BINARY") or "libra"


def _free_ports(ip: str, ports: str, count: int) -> list[int]:
    first, _, last = ports.partition("-")
    candidates = range(int(first), int(last) + 1) if ports else [0] * count
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in candidates:
            listener = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listener.bind((ip, port))
                found.append(listener.getsockname()[1])
            if len(found) == count:
                return found
    raise JobFailed(f"{len(found)} of its ports {ports} are free, and {count} needed: choose others in [ray] ports")


def _ray() -> Any:
    return importlib.import_module("ray")
