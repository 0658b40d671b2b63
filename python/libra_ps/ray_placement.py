"""Placement group of a job on a Ray cluster: the resources of the members with which it begins."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import JobFailed
from .jobfile import Settings
from .process import Member

#: Seconds between two lines about resources that are missing.
TELL_EVERY = 10.0


class Placement:
    """The placement group of a job. It is one for all members, so that a job has all of its resources or none."""

    def __init__(self, settings: Settings, members: Sequence[Member]) -> None:
        self._settings, self._members = settings, members
        self._group: Any = None
        for bundle, member in enumerate(members):
            member.bundle = bundle

    def wait(self, check: Callable[[], None], report: Callable[[str], None]) -> None:
        """Waits for the resources of all members. `check` raises if the job has ended meanwhile."""
        module = importlib.import_module("ray.util.placement_group")
        bundles = [self._needs(member) for member in self._members]
        self._group = module.placement_group(bundles, strategy=self._settings.strategy)
        deadline = time.monotonic() + self._settings.timeout
        tell = time.monotonic() + TELL_EVERY
        while not self._group.wait(1):
            check()
            if (now := time.monotonic()) > min(deadline, tell):
                lacking = self._lacking()
                if now > deadline:
                    raise JobFailed(f"after {self._settings.timeout:g} s {lacking}")
                report(lacking)
                tell = now + TELL_EVERY

    def strategy(self, member: Member) -> Any:
        """Returns the scheduling strategy of an actor that has a bundle."""
        scheduling = importlib.import_module("ray.util.scheduling_strategies")
        return scheduling.PlacementGroupSchedulingStrategy(self._group, member.bundle)

    def remove(self) -> None:
        """Gives all resources back."""
        if self._group is not None:
            importlib.import_module("ray.util.placement_group").remove_placement_group(self._group)
            self._group = None

    def _needs(self, member: Member) -> dict[str, float]:
        return dict(getattr(self._settings, member.role))

    def _lacking(self) -> str:
        """Names the first member that finds no room when those before it have theirs."""
        ray = importlib.import_module("ray")
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        free = ray._private.state.available_resources_per_node()
        room = {node: dict(free.get(node, {})) for node in nodes}
        for member in self._members:
            bundle = self._needs(member)
            fitting = [have for have in room.values() if all(have.get(name, 0) >= need for name, need in bundle.items())]
            if not fitting:
                left = {nodes[node]: amounts({name: have.get(name, 0) for name in bundle}) for node, have in room.items()}
                told = "; ".join(f"{node} has {amount} left" for node, amount in left.items())
                return f"{member.name} waits for {amounts(bundle)}: {told}"
            # The node with most of it: members are spread.
            most = max(fitting, key=lambda have: [have[name] for name in bundle])
            most.update({name: most[name] - need for name, need in bundle.items()})
        return f"the placement group waits for its strategy, {self._settings.strategy}, or for other jobs"


def amounts(resources: Mapping[str, float]) -> str:
    """Returns resources as text, as in `1 CPU, 2 GPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
