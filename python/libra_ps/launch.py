"""Clusters of the processes of a job: who hosts the controller, and how the others learn its address."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass

from .errors import ClusterEnded, JobDone, NotSupported

# Typing is for type checkers alone: its import would be a quarter of that of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .session import Session


logger = logging.getLogger("libra_ps")

#: Variable with the token of the cluster.
_TOKEN = "LIBRA_TOKEN"


@dataclass(frozen=True)
class Processes:
    """The processes of a job, as a launcher such as torchrun describes them."""

    rank: int
    workers: int
    #: Address of the controller of a cluster that runs.
    controller: str | None = None


def processes() -> Processes:
    """Returns the processes of the job of this one."""
    controller = os.environ.get("LIBRA_CONTROLLER")
    rank, workers = _number("RANK", 0), _number("WORLD_SIZE", 1)
    if rank >= workers:
        raise ValueError(f"RANK = {rank} must be below WORLD_SIZE = {workers}")
    if controller is not None:
        return Processes(rank, workers, controller)
    # A batch script itself has the tasks of its allocation, and is its process 0.
    tasks = _number("SLURM_STEP_NUM_TASKS", _number("SLURM_NTASKS", 1) if _number("SLURM_PROCID", 0) > 0 else 1)
    if tasks > 1 and "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        raise NotSupported(
            f"Slurm has started {tasks} tasks, and each of these processes would train alone: name the controller of a cluster in "
            "LIBRA_CONTROLLER, start them with torchrun, or set WORLD_SIZE=1 for a process alone"
        )
    local = _number("LOCAL_WORLD_SIZE", workers)
    if local != workers:
        raise NotSupported(
            f"{workers} processes on several machines are not there yet without a cluster: start the controller and the "
            "servers by themselves, and name the controller in LIBRA_CONTROLLER"
        )
    return Processes(rank, workers)


def _number(name: str, default: int) -> int:
    value = os.environ.get(name)
    if value is None:
        return default
    if not value.isdigit():
        raise ValueError(f"{name} = {value!r} must be a number")
    return int(value)


def hide_token() -> None:
    """Overwrites the token in the memory that the kernel shows to others as the environment of this process.

    The process has it as before, and so have the programs that it starts.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            shown = file.read()
        place = (b"\0" + shown).find(f"\0{_TOKEN}=".encode())
        if place < 0:
            return
        place += len(_TOKEN) + 1
        length = len(shown[place:].partition(b"\0")[0])
        with open("/proc/self/stat", "rb") as file:
            # Fields are counted from 1, and the second, the name, may have blanks: `env_start` is field 50 (proc_pid_stat(5)).
            start = int(file.read().rpartition(b") ")[2].split()[50 - 3])
        if _TOKEN in os.environ:
            # The C library has a copy of its own from then on.
            os.environ[_TOKEN] = os.environ[_TOKEN]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start + place)
            memory.write(b"*" * length)
    except OSError:
        # A system without /proc shows it to no other process.
        pass


def begin(session: Session) -> int:
    """Starts the cluster of a session, whose tables are known, or joins it. Collective over all workers.

    Returns the number of the next barrier, which is above 0 for a worker that comes late.
    """
    found = session.processes
    if found.controller is not None:
        address = _resolve(found.controller)
        try:
            return session.native.join(address, session.timeout, found.workers, session.plan)
        except JobDone as done:
            print(f"libra_ps: {done}", file=sys.stderr)
            raise
    store = _store(found, session.timeout)
    key = f"libra/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{session.number}"
    if found.rank == 0:
        address = session.native.host(session.servers, session.switches, found.workers, session.plan)
        logger.info("the controller listens at %s", address)
        store.set(key, address)
    else:
        try:
            store.wait([key])
        except Exception as error:
            raise ClusterEnded(
                f"rank 0 has not started the cluster after {session.timeout:g} s: it starts at the first look-up of rank 0"
            ) from error
        address = store.get(key).decode()
    return session.native.join(address, session.timeout, None, None)


def _resolve(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f'LIBRA_CONTROLLER = "{address}" must be a host and a port, as in node-1:7700')
    try:
        # Imported when it is needed: most programs never get here.
        import socket

        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise ClusterEnded(f'LIBRA_CONTROLLER = "{address}": {error.strerror or error}', is_lost=True) from None
    ip = found[0][4][0]
    return f"[{ip}]:{port}" if ":" in str(ip) else f"{ip}:{port}"


def _store(found: Processes, timeout: float) -> Any:
    """Returns the store of keys that all processes reach."""
    from datetime import timedelta

    import torch

    distributed: Any = torch.distributed

    limit = timedelta(seconds=timeout)
    if distributed.is_available() and distributed.is_initialized():
        store = distributed.PrefixStore("libra", distributed.distributed_c10d._get_default_store())
        store.set_timeout(limit)
        return store
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), _number("MASTER_PORT", 29500)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return distributed.TCPStore(host, port, is_master=False, timeout=limit)
    port = _number("LIBRA_PORT", port + 1)
    try:
        return distributed.TCPStore(host, port, is_master=found.rank == 0, timeout=limit, wait_for_workers=False)
    except Exception as error:
        raise ClusterEnded(
            f"port {port} of {host} for the address of the controller: {error}; LIBRA_PORT chooses another"
        ) from error
