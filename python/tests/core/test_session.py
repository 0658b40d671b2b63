"""Sessions, and the manners of the process that has one."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import libra_ps as libra
import numpy as np
import pytest
from libra_ps.session import _ABSENT
from libra_ps.definitions import Rule

SGD = Rule("sgd", {"lr": 0.5})


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_init_returns_the_session_that_is_there(session: libra.Session) -> None:
    assert libra.init() is session
    with pytest.raises(libra.Mismatch, match="mode sync and seed 7: call shutdown"):
        libra.init(mode="async")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"mode": "fast"}, ValueError, 'mode = "fast" must be one of async, ssp, sync'),
        ({"mode": "ssp"}, ValueError, 'take "sync" or "async"'),
        ({"seed": -1}, ValueError, "seed = -1 must be a number from 0"),
        ({"staleness": 0}, ValueError, "staleness = 0 must be at least 1"),
        ({"staleness": "a"}, TypeError, "staleness = 'a' must be an integer"),
        ({"servers": "2"}, TypeError, "servers = '2' must be an integer"),
        ({"switches": 0.5}, TypeError, "switches = 0.5 must be an integer"),
        ({"timeout": -1}, ValueError, "timeout = -1 must be a number of seconds, at least 0"),
        ({"timeout": "a"}, TypeError, "timeout = 'a' must be a number"),
        ({"steps": 3}, TypeError, "unexpected keyword argument 'steps'"),
    ],
)
def test_bad_options_are_refused(options: dict, error: type, text: str) -> None:
    libra.shutdown()
    with pytest.raises(error, match=text):
        libra.init(**options)


@pytest.mark.parametrize("note", [{"samples": 5}, {"loss": 0.5}, {"samples": -1, "loss": 0.5}, {"planned": -1}])
def test_bad_notes_are_refused(session: libra.Session, note: dict) -> None:
    with pytest.raises(ValueError, match="samples have a loss"):
        libra.note(**note)


def test_notes_of_a_process_alone_change_nothing(session: libra.Session) -> None:
    before = libra.stats()
    libra.note(planned=100)
    libra.note(samples=10, loss=0.5)
    assert libra.stats() == before


def test_operations_after_a_shutdown_are_refused() -> None:
    client = libra.Client()
    client.add_table("item", 10, 1, SGD)
    libra.shutdown()
    with pytest.raises(libra.Error, match="the session was shut down"):
        client.pull("item", [1])
    with pytest.raises(libra.Error, match="there is no session: call libra_ps.init"):
        libra.flush()


def test_updates_without_a_spare_core_are_applied_by_the_push() -> None:
    libra.shutdown()
    session = libra.init(mode="async")
    client = libra.Client()
    client.add_table("item", 10, 1, SGD, init=libra.Zero())
    gradient = np.ones((1, 1), np.float32)
    for threads in (1, 4096, 1):
        session.native.set_threads(threads)
        before = client.pull("item", [3])
        client.push("item", [3], gradient)
        if threads == 1:
            client.flush()
        assert client.pull("item", [3]) == before - 0.5


def test_async_mode_reads_its_pushes_after_a_flush() -> None:
    libra.shutdown()
    libra.init(mode="async")
    client = libra.Client()
    client.add_table("item", 1000, 4, SGD, init=libra.Zero())
    keys = np.arange(1000)
    for _ in range(20):
        client.push("item", keys, np.ones((1000, 4)))
    client.flush()
    assert np.all(client.pull("item", keys) == -10.0)


def test_stats_count_rows() -> None:
    client = libra.Client()
    client.add_table("item", 10, 1, SGD)
    client.push("item", [1, 1, 2], [[1.0]] * 3)
    client.tick()
    stats = libra.stats()
    assert stats["steps"] == 1
    assert stats["tables"]["item"] == {"ids": 0, "rows_pulled": 0, "rows_pushed": 2, "pushes": 1, "rows": 2}


def test_the_import_needs_no_torch_and_is_short() -> None:
    program = """
import sys
class Refuse:
    def find_spec(self, name, *_):
        if name.split('.')[0] == 'torch': raise ImportError('torch is not here')
sys.meta_path.insert(0, Refuse())
import time
# Of the processor, as other tests may run beside this one.
begin = time.process_time()
import libra_ps
print(time.process_time() - begin)
libra_ps.init()
assert 'torch' not in sys.modules and 'numpy' not in sys.modules
"""
    times = []
    for _ in range(3):
        done = run(program)
        assert done.returncode == 0, done.stderr
        times.append(float(done.stdout))
    assert min(times) < 0.06


@pytest.mark.parametrize("name", sorted(libra._ABSENT))
def test_attributes_that_are_not_there_yet_say_so(name: str) -> None:
    with pytest.raises(libra.NotSupported, match=f"libra_ps.{name} is not there yet: .+"):
        getattr(libra, name)
    assert not hasattr(libra, name)


def test_attributes_that_never_were_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'embedding'"):
        libra.embedding
    with pytest.raises(libra.NotSupported, match="libra_ps.save saves them"):
        libra.tables()


@pytest.mark.parametrize("name", sorted(_ABSENT))
def test_options_that_are_not_there_yet_say_so(name: str) -> None:
    with pytest.raises(libra.NotSupported, match=rf"init\({name}=\.\.\) is not there yet: .+"):
        libra.init(**{name: "x"})


def test_a_fork_is_refused() -> None:
    program = """
import os, libra_ps as libra
from libra_ps.definitions import Rule
libra.init()
client = libra.Client()
client.add_table('item', 10, 1, Rule('sgd', {'lr': 1.0}))
child = os.fork()
if child == 0:
    try:
        client.pull('item', [1])
    except libra.Forked as error:
        print('spawn' in str(error), flush=True)
        # The interpreter ends the child, which has no part in the session.
        raise SystemExit(0)
    os._exit(1)
_, status = os.waitpid(child, 0)
client.pull('item', [1])
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"


def test_the_interpreter_exits_with_pushes_open() -> None:
    program = """
import numpy as np, libra_ps as libra
from libra_ps.definitions import Rule
libra.init(mode='async')
client = libra.Client()
client.add_table('item', 200_000, 16, Rule('adam', {'lr': 0.1, 'beta1': 0.9, 'beta2': 0.99, 'eps': 1e-8}))
client.push('item', np.arange(200_000), np.ones((200_000, 16), np.float32))
"""
    begin = time.monotonic()
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begin < 6


def test_an_interrupt_is_heard_and_the_session_goes_on() -> None:
    program = """
import os, signal, threading, numpy as np, libra_ps as libra
from libra_ps.definitions import Rule
# A shell that starts a job in the background has it ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
libra.init()
client = libra.Client()
client.add_table('item', 100_000, 16, Rule('sgd', {'lr': 1.0}), init=libra.Zero())
keys, ones = np.arange(100_000), np.ones((100_000, 16), np.float32)
interrupts = 0
for turn in range(50):
    timer = threading.Timer(0.002 * turn % 0.03, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        for _ in range(4):
            client.push('item', keys, ones)
            client.pull('item', keys)
        timer.join()
    except KeyboardInterrupt:
        interrupts += 1
    try:
        timer.join()
    except KeyboardInterrupt:
        interrupts += 1
client.flush()
rows = client.pull('item', keys)
assert (rows == rows[0, 0]).all() and -200 <= rows[0, 0] < 0, rows
print(interrupts)
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.parametrize(
    ("environment", "options", "error", "text"),
    [
        ({"WORLD_SIZE": "2", "RANK": "2"}, "", "ValueError", "RANK = 2 must be below WORLD_SIZE = 2"),
        ({"WORLD_SIZE": "two"}, "", "ValueError", "WORLD_SIZE = 'two' must be a number"),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, "", "NotSupported", "name the controller in LIBRA_CONTROLLER"),
        ({}, "switches=1", "NotSupported", "for several workers: a process alone keeps the rows itself"),
        ({}, "servers=2", "NotSupported", "for several workers: a process alone keeps the rows itself"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "", "NotSupported", "name the controller of a cluster in LIBRA_CONTROLLER"),
        ({"WORLD_SIZE": "2"}, "switches=1", "ValueError", "a switch needs the hot rows of a plan"),
        ({"WORLD_SIZE": "2", "LIBRA_SWITCHES": "one"}, "", "ValueError", "LIBRA_SWITCHES = 'one' must be a number"),
        ({"WORLD_SIZE": "2"}, "plan='none.toml'", "ValueError", "plan = none.toml: No such file or directory"),
        ({}, "servers=0", "ValueError", "servers = 0 must be from 1 to 1024"),
    ],
)
def test_bad_jobs_are_refused(environment: dict[str, str], options: str, error: str, text: str) -> None:
    done = run(f"import libra_ps; libra_ps.init({options})", **environment)
    assert done.returncode == 1
    assert error in done.stderr.splitlines()[-1] and text in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize(
    ("controller", "code", "error", "text"),
    [
        ("localhost", 1, "ValueError", "must be a host and a port, as in node-1:7700"),
        ("127.0.0.1:9", 75, "ClusterEnded", "127.0.0.1:9: Connection refused"),
        ("no-such-host.invalid:7700", 75, "ClusterEnded", "no-such-host.invalid:7700"),
        ("192.0.2.1:7700", 1, "ValueError", "is reached over a network: give the token that it has printed in LIBRA_TOKEN"),
    ],
)
def test_controllers_that_are_not_there_are_named(controller: str, code: int, error: str, text: str) -> None:
    program = """
import libra_ps
from libra_ps.definitions import Rule
libra_ps.init(timeout=2)
client = libra_ps.Client()
client.add_table('item', 10, 1, Rule('sgd', {'lr': 1.0}))
client.pull('item', [1])
"""
    done = run(program, LIBRA_CONTROLLER=controller)
    assert done.returncode == code, done.stderr
    assert error in done.stderr.splitlines()[-1] and text in done.stderr.splitlines()[-1], done.stderr


def test_a_token_is_not_in_the_environment_that_others_see() -> None:
    token = "libra1_a4dqobyha4dqobyha4dqobyha4dqobyhf6o4"
    program = """
import os, subprocess, sys
import libra_ps

def shown():
    with open(f'/proc/{os.getpid()}/environ', 'rb') as file:
        return [entry for entry in file.read().split(bytes(1)) if entry.startswith(b'LIBRA_TOKEN=')]

token = os.environ['LIBRA_TOKEN']
assert shown() == [b'LIBRA_TOKEN=' + token.encode()]
for _ in range(2):
    libra_ps.init()
    assert shown() == [b'LIBRA_TOKEN=' + b'*' * len(token)], shown()
    libra_ps.shutdown()
child = os.fork()
if child == 0:
    os._exit(shown() != [b'LIBRA_TOKEN=' + b'*' * len(token)])
assert os.waitpid(child, 0)[1] == 0
# Programs that it starts have it, whether they get `os.environ` or what the C library has.
for environment in (None, dict(os.environ)):
    subprocess.run(['printenv', 'LIBRA_TOKEN'], env=environment, check=True)
print(os.environ['LIBRA_TOKEN'])
"""
    done = run(program, LIBRA_TOKEN=token)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [token] * 3


def test_a_worker_that_comes_when_the_job_is_done_exits_with_0() -> None:
    program = """
from types import SimpleNamespace
from libra_ps import JobDone, launch

def join(*_):
    raise JobDone('the job is done')

found = launch.Processes(0, 1, '127.0.0.1:7700')
launch.begin(SimpleNamespace(processes=found, timeout=1, plan=None, native=SimpleNamespace(join=join)))
"""
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "libra_ps: the job is done\n")
