"""Jobs on a Ray cluster: a member of the cluster of Libra is a process of the binary `libra`, run by an actor.

    python -m libra_ps.ray run job.toml --servers 2 --switches 1 --workers 2..8
    python -m libra_ps.ray scale 20260131-120000-5f3a --workers 4

Ray is imported when a job is started.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import math
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .errors import JobFailed, NotSupported
from .jobfile import ROLES, SIZES, JobFile, size
from .process import BACKOFF, About, Command, Ended, Member, Process, new_token
from .ray_placement import TELL_EVERY, Placement, amounts
from .ray_requests import answered, ask

#: Exit codes after which a process is not started again: its job is done, it would fail again, or a person has ended it.
FINAL = (0, 1, 2, 130)
#: Seconds between two looks at processes, nodes and the controller.
LOOK_EVERY = 0.2
#: Seconds, at most, before a process that has ended is started again.
BACKOFF_MAX = 10.0
#: Seconds beyond its grace that a process gets to end, and for an answer of an actor.
MARGIN = 5.0


class Job:
    """A job on a Ray cluster. A thread of the driver looks after its members."""

    def __init__(self, file: JobFile, tables: str, resume: str | None = None, **sizes: int | str | None) -> None:
        self._ray = _ray()
        self._file, self._settings = file, file.settings
        options = file.options("controller")
        self._sizes = {name: file.size(name) if sizes.get(name) is None else size(name, sizes[name]) for name in SIZES}
        self._resume = [] if resume is None else [f"--resume={resume}"]
        #: Name of this run, for other programs and for directories.
        self.name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        self._sections = file.of_run(self.name, resumes=resume is not None or "resume" in options)
        self._folder = tempfile.mkdtemp(prefix="libra-job-")
        self._json = Path(options.get("json") or Path(self._folder, "report.json"))
        self._report: dict[str, Any] | None = None
        self._tables = tables
        self._of_controller: tuple[str, ...] = ()
        self._http = ""
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._failure: str | None = None
        self._placement: Placement | None = None
        counts = {"server": self._sizes["servers"][0], "switch": self._sizes["switches"][0]}
        counts["switch"] += self._settings.standby if counts["switch"] else 0
        counts["worker"], most = self._sizes["workers"] if tables == "model" else (0, 0)
        self._members = [Member(role, index) for role in ROLES for index in range(counts[role])]
        self._least = len(self._members)
        # Workers beyond the least number come when there is room, and the job does not wait for them.
        self._members += [Member("worker", index) for index in range(counts["worker"], most)]
        self._controller = Member("controller", 0)
        #: Environment of programs that are workers of this cluster.
        self.environment: dict[str, str] = {}

    def start(self) -> Job:
        """Starts all members; returns when they run and servers and switches have joined."""
        try:
            self._start_controller()
            threading.Thread(target=self._supervise, name="libra", daemon=True).start()
            self._until(lambda: self._status() is not None, "the controller does not answer")
            self._place()
            self._launch("server", "switch")
            self._until(self._have_joined, "servers and switches have not joined")
            self._launch("worker")
        except BaseException:
            self.cancel()
            raise
        return self

    def _start_controller(self) -> None:
        """Starts the controller on the node of the driver: losing that node ends the job in any case."""
        controller = self._controller
        self._enter(controller)
        about = self._wait_for_actor(controller)
        port, http = self._get(controller, controller.actor.free_ports.remote(self._settings.ports, 2))
        self._http = f"http://{about.ip}:{http}"
        # Actors start workers again, and Ray Train its own: a job without any waits for them.
        self.environment = {"LIBRA_CONTROLLER": f"{about.ip}:{port}", "LIBRA_RESTARTED": "true"}
        if not {"insecure", "token-file", "tls-ca"} & set(self._file.options("controller")):
            self.environment["LIBRA_TOKEN"] = os.environ.get("LIBRA_TOKEN") or new_token(self._settings.binary)
        sizes = [f"--{name}={least if least == most else f'{least}..{most}'}" for name, (least, most) in self._sizes.items()]
        places = (f"--listen={about.ip}:{port}", f"--http={about.ip}:{http}")
        self._of_controller = (*places, f"--tables={self._tables}", *sizes, *self._resume)
        self._run(controller)

    def _place(self) -> None:
        """Waits for the resources of all members, and enters their actors."""
        placed = self._members[: self._least]
        self._placement = Placement(self._settings, placed)
        self._placement.wait(self._check, _report)
        for member in self._members:
            self._enter(member)
        for member in placed:
            self._wait_for_actor(member)

    def _launch(self, *roles: str) -> None:
        with self._lock:
            for member in self._members:
                if member.role in roles:
                    self._run(member)

    def _have_joined(self) -> bool:
        status = self._status()
        if status is None:
            return False
        gathering, kinds = status["gathering"], ("servers", "switches")
        if gathering is None:
            # The servers may have come back with a job.
            return bool(status["phase"] != "gathering")
        return all(gathering[kind]["there"] >= gathering[kind]["expected"] for kind in kinds)

    def _until(self, holds: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + self._settings.timeout
        while not holds():
            self._over.wait(LOOK_EVERY)
            self._check()
            if time.monotonic() > deadline:
                ends = [member.told(member.last) for member in self._members if member.last is not None]
                raise JobFailed("; ".join([f"{complaint} after {self._settings.timeout:g} s", *ends]))

    def _check(self) -> None:
        if self._failure is not None:
            raise JobFailed(self._failure)

    def _enter(self, member: Member) -> None:
        """Makes an actor for a member."""
        resources = dict(getattr(self._settings, member.role, {}))
        options: dict[str, Any] = {"num_cpus": resources.pop("CPU", 0), "num_gpus": resources.pop("GPU", 0)}
        if member.role == "controller":
            scheduling = importlib.import_module("ray.util.scheduling_strategies")
            here = self._ray.get_runtime_context().get_node_id()
            options["scheduling_strategy"] = scheduling.NodeAffinitySchedulingStrategy(here, soft=False)
        elif member.bundle is not None and self._placement is not None:
            options["scheduling_strategy"] = self._placement.strategy(member)
        process = self._ray.remote(Process).options(max_concurrency=4, resources=resources, **options)
        member.actor = process.remote(member.name)
        member.about, member.placed = None, member.actor.about.remote(self._settings.binary)

    def _run(self, member: Member) -> None:
        """Starts the process of a member whose actor is there, or comes."""
        is_controller = member.role == "controller"
        defaults = {"patience": "60", "grace": f"{self._settings.grace:g}", "return-max": "120", "json": str(self._json)}
        given = self._file.options(member.role)
        environment = {_variable(name): value for name, value in defaults.items() if name not in given}
        if "http" in given:
            environment["LIBRA_HTTP"] = str(given["http"])
        command = Command(
            member.role,
            self._settings.binary,
            self._sections[member.role],
            str(self._file.path),
            self._of_controller if is_controller else (),
            {**environment, **self.environment},
            self._settings.ports,
            os.getcwd() if is_controller else None,
            self._controller.about.versions if self._controller.about is not None else "",
        )
        member.state, member.starts, member.leaves, member.began = "running", member.starts + 1, False, time.monotonic()
        member.tell_at = member.began + TELL_EVERY
        member.pending = member.actor.run.remote(command)

    def _supervise(self) -> None:
        try:
            while not self._over.wait(LOOK_EVERY):
                draining = set(self._ray._private.state.state.get_draining_nodes())
                with self._lock:
                    self._leave(draining)
                    for member in (self._controller, *self._members):
                        self._look_at(member, draining)
        except Exception as error:
            self._end(f"the driver no longer looks after the job: {error!r}")

    def _look_at(self, member: Member, draining: set[str]) -> None:
        """Starts a process again that has asked for that. One that has failed ends the job, and so does the controller."""
        if member.about is None and (about := self._answer(member, member.placed)) is not None:
            member.about = about if isinstance(about, About) else None
        if member.state == "away" and member.wanted and time.monotonic() >= member.began + member.delay:
            if member.about is not None and member.about.node in draining:
                self._free(member)
                member.bundle = None
            if member.actor is None:
                self._enter(member)
            self._run(member)
        elif member.state == "running" and (ended := self._answer(member, member.pending)) is not None:
            member.last = ended
            if not member.wanted and member.bundle is None:
                self._free(member)
            if ended.code not in FINAL:
                member.state = "away"
                has_run = time.monotonic() > member.began + BACKOFF_MAX
                member.delay = BACKOFF if has_run else min(2 * member.delay, BACKOFF_MAX)
                member.began = time.monotonic()
                _report(member.told(ended) + ("; it is started again" if member.wanted else ""))
                return
            member.state = "done"
            if ended.code != 0:
                self._end(member.told(ended))
            elif member is self._controller:
                self._end(None)
        elif member.state == "running" and member.about is None and time.monotonic() > member.tell_at:
            _report(f"{member.name} waits for a node with {amounts(getattr(self._settings, member.role))}")
            # One that the job does not need may wait for long.
            member.tell_at = time.monotonic() + TELL_EVERY if member.bundle is not None else math.inf

    def _answer(self, member: Member, reference: Any) -> Any:
        """Returns the answer of an actor if it has come. An actor that is lost has killed its process."""
        if reference is None or not self._ray.wait([reference], timeout=0)[0]:
            return None
        ip = member.about.ip if member.about is not None else None
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return Ended(1, str(error.cause), ip)
        except self._ray.exceptions.RayError as error:
            # One that is only out of reach must not run its process beside the next.
            self._free(member)
            return Ended(-signal.SIGKILL, f"its actor is lost ({type(error).__name__})", ip)

    def _leave(self, draining: set[str]) -> None:
        """Asks members on nodes that Ray drains to end, servers after switches, whose sums they take; they are started again elsewhere."""
        members = (self._controller, *self._members)
        there = [member for member in members if member.about and member.about.node in draining and member.state == "running"]
        has_switch = any(member.role == "switch" for member in there)
        for member in there:
            if member.about is None or member.leaves or (has_switch and member.role == "server"):
                continue
            member.leaves = True
            if member is self._controller:
                _report(f"Ray drains node {member.about.ip}, which has the driver and the controller: the job ends with it")
            else:
                _report(f"Ray drains node {member.about.ip}: {member.name} leaves it")
                member.actor.terminate.remote()

    def _end(self, failure: str | None) -> None:
        if not self._over.is_set():
            self._failure = failure
            self._over.set()

    def status(self) -> dict[str, Any]:
        """Returns the members with their nodes and processes, and the status of the controller."""
        with self._lock:
            members = [dataclasses.replace(member) for member in (self._controller, *self._members)]
        pids = self._ask(members, "pid")
        shown = [
            {
                "member": member.name,
                "state": member.state,
                "node": member.about.ip if member.about is not None else None,
                "pid": pids.get(member.name),
                "starts": member.starts,
                "last": member.last.reason if member.last is not None else None,
            }
            for member in members
        ]
        return {"members": shown, "controller": self._status(), "http": self._http, "failure": self._failure}

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits for the end of the job, and returns its report."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"the job still runs after {timeout:g} s")
        if self._failure is not None:
            self.cancel()
            raise JobFailed(self._failure)
        self._await(self._members)
        if self._report is None:
            self._report = json.loads(self._json.read_text(encoding="utf-8")) if self._json.exists() else {}
        self._remove()
        return self._report

    def scale(self, *, workers: int | None = None, servers: int | None = None) -> None:
        """Lets workers leave or come, up to as many as the job may have."""
        there = [member for member in self._members if member.role == "worker"]
        if servers is not None:
            how = f"cancel it, and begin it once more with --resume --servers {servers}"
            if "checkpoints" not in self._file.options("controller"):
                how = "only a job with `checkpoints` at a URL in its file can be resumed with another number of them"
            raise NotSupported(f"servers = {servers}: the number of servers is fixed when a job begins; {how}")
        if workers is not None and not 1 <= workers <= len(there):
            raise NotSupported(f"workers = {workers} must be 1 to {len(there)}, as many as the job may have (workers = MIN..MAX)")
        with self._lock:
            for member in there[: len(there) if workers is None else workers]:
                member.wanted = True
            leaving = there[workers:] if workers is not None else []
            for member in leaving:
                member.wanted = False
                if member.state == "running" and member.about is None:
                    # It waits for a node, and has not begun.
                    self._free(member)
                    member.state = "away"
        self._ask(leaving, "terminate")

    def cancel(self) -> None:
        """Ends all processes in order: servers with a state directory save what they have. Then frees the resources."""
        self._end("the job was cancelled")
        for role in ("worker", "switch", "server", "controller"):
            members = [member for member in (*self._members, self._controller) if member.role == role]
            self._ask(members, "terminate")
            self._await(members)
        self._remove()

    def _await(self, members: Sequence[Member]) -> None:
        running = [member for member in members if member.state == "running" and member.about is not None]
        pending = [member.pending for member in running if member.actor is not None]
        if pending:
            self._ray.wait(pending, num_returns=len(pending), timeout=self._settings.grace + MARGIN)

    def _remove(self) -> None:
        """Removes actors, and processes that are still there."""
        members = [*self._members, self._controller]
        self._ask(members, "kill")
        for member in members:
            self._free(member)
        if self._placement is not None:
            self._placement.remove()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _free(self, member: Member) -> None:
        """Ends the actor of a member, and its process."""
        if member.actor is not None:
            self._ray.kill(member.actor)
            member.actor = None

    def _ask(self, members: Sequence[Member], method: str) -> dict[str, Any]:
        """Calls a method of all actors that run a process. Returns the answers that come in time, by the member's name."""
        running = [member for member in members if member.state == "running" and member.about and member.actor is not None]
        asked = {getattr(member.actor, method).remote(): member for member in running}
        if not asked:
            return {}
        ready, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=MARGIN)
        answers = {}
        for reference in ready:
            with contextlib.suppress(self._ray.exceptions.RayError):
                answers[asked[reference].name] = self._ray.get(reference)
        return answers

    def _wait_for_actor(self, member: Member) -> About:
        about: About = self._get(member, member.placed)
        member.about = about
        if about.failure is not None:
            raise JobFailed(f"{member.name} on node {about.ip}: {about.failure}")
        return about

    def _get(self, member: Member, reference: Any) -> Any:
        try:
            return self._ray.get(reference, timeout=self._settings.timeout)
        except self._ray.exceptions.RayTaskError as error:
            raise JobFailed(member.told(Ended(1, str(error.cause), member.about.ip if member.about is not None else None))) from None
        except self._ray.exceptions.RayError as error:
            raise JobFailed(f"{member.name} has no actor: {error}") from None

    def _status(self) -> dict[str, Any] | None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self._http}/status", timeout=MARGIN) as answer:
                status: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return None
        return status


def run(
    path: str | os.PathLike[str],
    *,
    servers: int | None = None,
    switches: int | None = None,
    workers: int | str | None = None,
    resume: str | None = None,
) -> Job:
    """Starts the job of a file on the Ray cluster of this program. What is not given is that of the file.

    `workers="2..8"` begins with two, and has up to eight when there is room. `resume="auto"` goes on from the newest checkpoint at the
    URL of the job, if there is one.
    """
    _connect()
    return Job(JobFile(path), "model", resume, servers=servers, switches=switches, workers=workers).start()


@contextlib.contextmanager
def cluster(
    path: str | os.PathLike[str] | None = None, *, servers: int = 2, switches: int = 0, workers: int = 2
) -> Iterator[Job]:
    """Runs a controller, servers and switches for workers that are programs in Python, as those of Ray Train.

    They need the `environment` of the job; leaving the context ends the cluster.
    """
    _connect()
    job = Job(JobFile(path), "workers", servers=servers, switches=switches, workers=workers).start()
    try:
        yield job
        # Workers that are done have said so before they end.
        job.wait(job._settings.grace)
    finally:
        job.cancel()


def _connect(address: str | None = None) -> None:
    ray = _ray()
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        ray.init(address)
    except ConnectionError as error:
        raise JobFailed(f"no Ray cluster at {address}: `ray start --head` begins one, --address names another ({error})") from None


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise JobFailed(f"Ray cannot be imported ({error}): pip install libra-ps[ray]") from None


def _variable(option: str) -> str:
    return f"LIBRA_{option.upper().replace('-', '_')}"


def _report(text: str) -> None:
    print(f"libra_ps.ray: {text}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs a job as the command line says, or asks one that another program drives."""
    parser = argparse.ArgumentParser(prog="python -m libra_ps.ray", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="run a job to its end")
    command.add_argument("job", metavar="JOB.toml")
    for name in SIZES:
        command.add_argument(f"--{name}", metavar="MIN..MAX" if name == "workers" else "N")
    command.add_argument("--resume", nargs="?", const="auto", metavar="PLACE", help="go on from a checkpoint: that of --checkpoints")
    status = commands.add_parser("status", help="print the members of a job, and the status of its controller, as JSON")
    scale = commands.add_parser("scale", help="change the number of workers of a job")
    for other in (status, scale):
        other.add_argument("name", metavar="NAME", help="of the job: its driver prints it")
    for name in ("workers", "servers"):
        scale.add_argument(f"--{name}", type=int, metavar="N", default=argparse.SUPPRESS)
    for each in (command, status, scale):
        each.add_argument("--address", help="head of the Ray cluster; RAY_ADDRESS, or the one of this machine, if not given")
    options = parser.parse_args(arguments)
    job: Job | None = None
    try:
        _connect(options.address)
        if options.command != "run":
            found = ask(options.name, {name: size for name, size in vars(options).items() if name in SIZES})
            if options.command == "status":
                print(json.dumps(found, indent=1))
            return 0
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        sizes = {name: getattr(options, name) for name in SIZES}
        job = run(options.job, resume=options.resume, **sizes)
        with answered(job):
            _report(f"job {job.name} runs: `status {job.name}` prints its status, `scale {job.name} --workers N` changes its workers")
            job.wait()
    except (JobFailed, NotSupported) as error:
        _report(str(error))
        return 1
    except KeyboardInterrupt:
        if job is not None:
            job.cancel()
        return 130
    return 0


if __name__ == "__main__":
    # Actors find their class in the module of this name.
    sys.exit(importlib.import_module("libra_ps.ray").main())
