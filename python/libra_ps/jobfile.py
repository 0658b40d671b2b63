"""Files `job.toml`: the options of a job and of its members.

The top has options of `libra controller`, the tables `[server]`, `[switch]` and `[worker]` have those of the members, and
`[ray]` has what the members get of a Ray cluster.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import JobFailed

ROLES = ("server", "switch", "worker")
#: Members of a job that does not say.
SIZES = {"servers": 2, "switches": 1, "workers": 2}
#: Options that a launcher sets.
RESERVED = {
    "controller": ("listen", "http", "tables", "config"),
    **{role: ("controller", "config") for role in ROLES},
}


@dataclass(frozen=True)
class Settings:
    """The table `[ray]`."""

    #: Resources of a process of each role.
    server: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1})
    switch: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1, "libra_switch": 1})
    worker: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1})
    #: Strategy of the placement group.
    strategy: str = "SPREAD"
    #: Ports of members on a node, as in 7700-7799; any free ones if empty.
    ports: str = ""
    #: Switches beyond those that the job waits for.
    standby: int = 0
    #: The binary on all nodes; LIBRA_BINARY there, or `libra` in PATH, if empty.
    binary: str = ""
    #: Seconds for resources, and for members to join.
    timeout: float = 300
    #: Seconds that a member has to end in order.
    grace: float = 25


class JobFile:
    """A file `job.toml`, or an empty one."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = Path(path) if path is not None else Path("job.toml")
        try:
            self.text = self.path.read_text(encoding="utf-8") if path is not None else ""
        except OSError as error:
            raise JobFailed(f"{self.path}: {error.strerror}") from None
        toml = _toml()
        try:
            self._all = toml.loads(self.text)
        except toml.TOMLDecodeError as error:
            raise JobFailed(f"{self.path}: {error}") from None
        for name, value in self._all.items():
            if isinstance(value, dict) and name not in (*ROLES, "ray"):
                raise self._complaint("controller", name, f"there is no table [{name}]; there are {', '.join(ROLES)} and ray")
        for role, names in RESERVED.items():
            for name in names:
                if name in self.options(role):
                    raise self._complaint(role, name, f"`{name}` is not to be set: the launcher does that")
        self.settings = self._settings()

    def _settings(self) -> Settings:
        table = self._all.get("ray", {})
        known = Settings.__dataclass_fields__
        for name, value in table.items():
            if name not in known:
                raise self._complaint("ray", name, f"[ray] has no key `{name}`; it has {', '.join(known)}")
            like = getattr(Settings(), name)
            if not isinstance(value, (int, float) if isinstance(like, float | int) else type(like)):
                raise self._complaint("ray", name, f"[ray] {name} = {value!r} must be like {like!r}")
        settings = Settings(**table)
        if settings.ports and not re.fullmatch(r"\d+-\d+", settings.ports):
            raise self._complaint("ray", "ports", f'[ray] ports = "{settings.ports}" must be like "7700-7799"')
        return settings

    def options(self, role: str) -> Mapping[str, Any]:
        """Returns the options of a role, by name."""
        if role == "controller":
            return {name: value for name, value in self._all.items() if not isinstance(value, dict)}
        found: Mapping[str, Any] = self._all.get(role, {})
        return found

    def size(self, name: str) -> tuple[int, int]:
        """Returns the numbers of members of a kind with which the job begins, and that it may have."""
        try:
            return size(name, self._all.get(name, SIZES[name]))
        except JobFailed as error:
            raise self._complaint("controller", name, str(error)) from None

    def of_run(self, run: str, *, resumes: bool) -> dict[str, str]:
        """Returns the lines of each role for a run, whose name `{job}` stands for."""
        named = self.options("server").get("state-dir")
        if resumes and named is not None and "{job}" not in named:
            fault = "a job that resumes needs new directories: {job} stands for the name of the run, as in /var/lib/libra/{job}/{member}"
            raise self._complaint("server", "state-dir", fault)
        return {role: self.section(role).replace("{job}", run) for role in ("controller", *ROLES)}

    def section(self, role: str) -> str:
        """Returns the lines of a role, as the text of a file of its own."""
        text = "\n".join(line for _, line in self._lines(role))
        try:
            if _toml().loads(text) == self.options(role):
                return text
        except ValueError:
            pass
        raise JobFailed(f"{self.path}: the options of {role} must be one on a line, below one table [{role}]")

    def _lines(self, role: str) -> list[tuple[int, str]]:
        now, lines = "controller", []
        for number, line in enumerate(self.text.splitlines(), 1):
            header = re.match(r"\s*\[+\s*([\w-]+)", line)
            now = header[1] if header else now
            if now == role and not header:
                lines.append((number, line))
        return lines

    def explain(self, reason: str) -> str:
        """Adds the line of an option to the reason why a process did not take it."""
        unknown = re.search(r"`(\w+)` has no option `([\w-]+)`", reason)
        return str(self._complaint(unknown[1], unknown[2], unknown[0])) if unknown else reason

    def _complaint(self, role: str, name: str, text: str) -> JobFailed:
        wanted = re.compile(rf'\s*"?{re.escape(name)}\b')
        found = [f", line {number}" for number, line in self._lines(role) if wanted.match(line)]
        return JobFailed(f"{self.path}{found[0] if found else ''}: {text}")


def size(name: str, value: object) -> tuple[int, int]:
    """Returns the least and the greatest number of members that are meant by 4, "4" or, for workers, "2..4"."""
    is_plain = isinstance(value, int | str) and not isinstance(value, bool)
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", str(value)) if is_plain else None
    if found is None or (found[2] is not None and name != "workers") or int(found[1]) > int(found[2] or found[1]):
        like = "a number, or MIN..MAX" if name == "workers" else "a number, which is fixed when a job begins"
        raise JobFailed(f"{name} = {value!r} must be {like}")
    return int(found[1]), int(found[2] or found[1])


def _toml() -> Any:
    return importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
