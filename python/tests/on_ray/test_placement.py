"""The placement group and requests of other programs, without a cluster."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import libra_ps
import pytest
from libra_ps import ray_placement
from libra_ps.jobfile import Settings
from libra_ps.process import Member
from libra_ps.ray_placement import Placement
from libra_ps.ray_requests import Requests

MEMBERS = (("server", 0), ("server", 1), ("switch", 0), ("worker", 0), ("worker", 1))


class Cluster:
    """A cluster that has room for a group, or is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_full: bool = False) -> None:
        self.is_full = is_full
        self.asked: list[tuple[str, list[dict[str, float]]]] = []
        self.removed: list[str] = []
        node = {"NodeID": "n", "NodeManagerAddress": "10.0.0.1", "Alive": True}
        state = SimpleNamespace(available_resources_per_node=lambda: {"n": {"CPU": 1.0}})
        modules = {
            "ray.util.placement_group": SimpleNamespace(placement_group=self.placement_group, remove_placement_group=self.remove),
            "ray": SimpleNamespace(nodes=lambda: [node], _private=SimpleNamespace(state=state)),
        }
        monkeypatch.setattr(ray_placement.importlib, "import_module", modules.__getitem__)

    def placement_group(self, bundles: list[dict[str, float]], strategy: str) -> Any:
        self.asked.append((strategy, bundles))
        return SimpleNamespace(name=strategy, wait=lambda seconds: not self.is_full)

    def remove(self, group: Any) -> None:
        self.removed.append(group.name)


def check() -> None:
    """The job goes on."""


def test_a_strategy_of_the_file_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, members = Cluster(monkeypatch), [Member(*named) for named in MEMBERS]
    placement = Placement(Settings(strategy="STRICT_SPREAD"), members)
    placement.wait(check, print)
    assert [(strategy, len(bundles)) for strategy, bundles in cluster.asked] == [("STRICT_SPREAD", 5)]
    assert [member.bundle for member in members] == [0, 1, 2, 3, 4]
    for _ in range(2):
        placement.remove()
    assert cluster.removed == ["STRICT_SPREAD"]


def test_resources_that_never_come_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, is_full=True)
    with pytest.raises(libra_ps.JobFailed, match="after 0 s server-1 waits for 1 CPU: 10.0.0.1 has 0 CPU left"):
        Placement(Settings(timeout=0.0), [Member(*named) for named in MEMBERS]).wait(check, print)
    assert not cluster.removed


def test_answers_are_those_of_their_requests() -> None:
    requests = Requests()
    answers: dict[int, Any] = {}
    asking = [threading.Thread(target=lambda n=n: answers.update({n: requests.ask({"workers": n})})) for n in range(3)]
    for thread in asking:
        thread.start()
    taken = [requests.next() for _ in asking]
    for number, sizes in reversed(taken):
        requests.answer(number, f"{sizes['workers']}")
    for thread in asking:
        thread.join(10)
    assert answers == {0: "0", 1: "1", 2: "2"}
