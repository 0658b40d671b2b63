"""Placement groups of a job on a Ray cluster: the resources of the members with which it begins."""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import JobFailed
from .jobfile import ROLES, Settings
from .process import Member

#: Seconds between two lines about resources that are missing.
TELL_EVERY = 10.0
#: Strategies if the file names none: a node that is lost has one server or switch, and workers leave whole nodes to others.
STRATEGIES = {"SPREAD": ("server", "switch"), "PACK": ("worker",)}


@dataclass
class Group:
    """A placement group. Ray has one strategy for all members of a group."""

    strategy: str
    members: list[Member]
    placed: Any = None


class Placement:
    """The placement groups of a job: that of servers and switches and that of workers, or one of all with the strategy of the file."""

    def __init__(self, settings: Settings, members: Sequence[Member]) -> None:
        self._settings = settings
        strategies = {settings.strategy: ROLES} if settings.strategy else STRATEGIES
        groups = [Group(name, [member for member in members if member.role in roles]) for name, roles in strategies.items()]
        self._groups = [group for group in groups if group.members]
        for group in self._groups:
            for bundle, member in enumerate(group.members):
                member.bundle = bundle

    def wait(self, check: Callable[[], None], report: Callable[[str], None]) -> None:
        """Waits for the resources of all members. `check` raises if the job has ended meanwhile."""
        deadline = time.monotonic() + self._settings.timeout
        tell = time.monotonic() + TELL_EVERY
        self._ask()
        while waiting := [group for group in self._groups if not group.placed.wait(1)]:
            check()
            if (now := time.monotonic()) > min(deadline, tell):
                lacking = self._lacking(waiting)
                if now > deadline:
                    raise JobFailed(f"after {self._settings.timeout:g} s {lacking}")
                report(lacking)
                tell = now + TELL_EVERY
                if len(waiting) < len(self._groups):
                    # Two jobs that each have one of their groups would wait for each other: this one gives its own back for a time that
                    # differs from that of the other.
                    self.remove()
                    time.sleep(random.uniform(1, TELL_EVERY / 2))
                    self._ask()

    def strategy(self, member: Member) -> Any:
        """Returns the scheduling strategy of an actor that has a bundle."""
        scheduling = importlib.import_module("ray.util.scheduling_strategies")
        group = next(group for group in self._groups if any(other is member for other in group.members))
        return scheduling.PlacementGroupSchedulingStrategy(group.placed, member.bundle)

    def remove(self) -> None:
        """Gives all resources back."""
        module = importlib.import_module("ray.util.placement_group")
        for group in self._groups:
            if group.placed is not None:
                module.remove_placement_group(group.placed)
                group.placed = None

    def _ask(self) -> None:
        module = importlib.import_module("ray.util.placement_group")
        for group in self._groups:
            group.placed = module.placement_group([self._needs(member) for member in group.members], strategy=group.strategy)

    def _needs(self, member: Member) -> dict[str, float]:
        return dict(getattr(self._settings, member.role))

    def _lacking(self, waiting: Sequence[Group]) -> str:
        """Names the first member that finds no room when those before it have theirs."""
        ray = importlib.import_module("ray")
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        free = ray._private.state.available_resources_per_node()
        room = {node: dict(free.get(node, {})) for node in nodes}
        for group in waiting:
            for member in group.members:
                bundle = self._needs(member)
                fitting = [have for have in room.values() if all(have.get(name, 0) >= need for name, need in bundle.items())]
                if not fitting:
                    left = {nodes[node]: amounts({name: have.get(name, 0) for name in bundle}) for node, have in room.items()}
                    told = "; ".join(f"{node} has {amount} left" for node, amount in left.items())
                    return f"{member.name} waits for {amounts(bundle)}: {told}"
                # Members that are packed take the node that has least left.
                choose = min if "PACK" in group.strategy else max
                chosen = choose(fitting, key=lambda have: [have[name] for name in bundle])
                chosen.update({name: chosen[name] - need for name, need in bundle.items()})
        strategies = ", ".join(group.strategy for group in waiting)
        return f"the placement group waits for its strategy, {strategies}, or for other jobs"


def amounts(resources: Mapping[str, float]) -> str:
    """Returns resources as text, as in `1 CPU, 2 GPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
