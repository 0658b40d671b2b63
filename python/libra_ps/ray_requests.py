"""Requests of other programs to the driver of a job on Ray, through an actor that has the name of the job."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import queue
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from .errors import JobFailed, NotSupported

#: Namespace of Ray for the names of jobs.
NAMESPACE = "libra"
#: Seconds for an answer of a driver, which asks all members.
ANSWER_MAX = 30.0


class Asked(Protocol):
    """A job that is asked."""

    name: str

    def status(self) -> dict[str, Any]: ...

    def scale(self, *, workers: int | None = None, servers: int | None = None) -> None: ...


class Requests:
    """Brings requests to the driver and its answers back; an actor."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._asked: queue.Queue[tuple[int, Mapping[str, int]]] = queue.Queue()
        self._answers: dict[int, queue.Queue[dict[str, Any] | str]] = {}

    def ask(self, sizes: Mapping[str, int]) -> dict[str, Any] | str:
        """Returns the status of the job after a change of its sizes, or the reason why it cannot have those."""
        number = next(self._numbers)
        answer = self._answers[number] = queue.Queue()
        self._asked.put((number, sizes))
        return answer.get(timeout=ANSWER_MAX)

    def next(self) -> tuple[int, Mapping[str, int]]:
        """Returns the next request when it comes."""
        return self._asked.get()

    def answer(self, number: int, answer: dict[str, Any] | str) -> None:
        self._answers.pop(number).put(answer)


@contextlib.contextmanager
def answered(job: Asked) -> Iterator[None]:
    """Answers requests while the context lasts."""
    ray = importlib.import_module("ray")
    scheduling = importlib.import_module("ray.util.scheduling_strategies")
    # On the node of the driver, it is lost with the driver alone.
    here = scheduling.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"name": job.name, "namespace": NAMESPACE, "num_cpus": 0, "max_concurrency": 16, "scheduling_strategy": here}
    actor = ray.remote(Requests).options(**options).remote()
    thread = threading.Thread(target=_answer, args=(ray, actor, job), name="libra-requests", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ray.kill(actor)
        thread.join(ANSWER_MAX)


def _answer(ray: Any, actor: Any, job: Asked) -> None:
    # The actor is killed at the end.
    with contextlib.suppress(ray.exceptions.RayError):
        while True:
            number, sizes = ray.get(actor.next.remote())
            try:
                if sizes:
                    job.scale(**sizes)
                answer: dict[str, Any] | str = job.status()
            except NotSupported as error:
                answer = str(error)
            actor.answer.remote(number, answer)


def ask(name: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Changes the sizes of a job that another program drives, if any are given. Returns its status."""
    ray = importlib.import_module("ray")
    try:
        actor = ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        names = [found["name"] for found in ray.util.list_named_actors(all_namespaces=True) if found["namespace"] == NAMESPACE]
        raise JobFailed(f"no job {name} runs on this Ray cluster; there are: {', '.join(names) or 'none'}") from None
    try:
        answer: dict[str, Any] | str = ray.get(actor.ask.remote(sizes), timeout=2 * ANSWER_MAX)
    except ray.exceptions.RayError as error:
        raise JobFailed(f"the driver of {name} does not answer ({type(error).__name__})") from None
    if isinstance(answer, str):
        raise NotSupported(answer)
    return answer
