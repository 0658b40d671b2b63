"""Files `job.toml`: the options of a job and of its members.

The top has options of `libra controller`, the tables `[server]`, `[switch]` and `[worker]` have those of the members, and
`[ray]` has what the members get of a Ray cluster.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import JobFailed

ROLES = ("server", "switch", "worker")
TABLES = (*ROLES, "ray")
#: Strategies of placement groups of Ray.
STRATEGIES = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")
HEADER = re.compile(r"""\s*\[+\s*["']?([\w-]+)""")
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
    timeout: float = 300.0
    #: Seconds that a member has to end in order.
    grace: float = 25.0


class JobFile:
    """A file `job.toml`, or an empty one."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = Path(path) if path is not None else Path("job.toml")
        try:
            self.text = self.path.read_text(encoding="utf-8") if path is not None else ""
        except OSError as error:
            raise JobFailed(f"{self.path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise JobFailed(f"{self.path}: it is no text in UTF-8 ({error})") from None
        toml = _toml()
        try:
            self._all = toml.loads(self.text)
        except toml.TOMLDecodeError as error:
            raise JobFailed(f"{self.path}: {error}") from None
        for name, value in self._all.items():
            if name in TABLES:
                if not isinstance(value, dict) or not self._has_header(name):
                    raise self._complaint("controller", name, f"the options of {name} must be below one table [{name}]")
            elif isinstance(value, dict):
                raise self._complaint("controller", name, f"there is no table [{name}]; there are {', '.join(TABLES)}")
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
            if (like := _unlike(name, value)) is not None:
                raise self._complaint("ray", name, f"[ray] {name} = {value!r} must be {like}")
        return Settings(**table)

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
        """Returns the lines of a role, each in its place, as the text of a file of its own."""
        lines = {number: line for number, (now, line) in enumerate(self._lines()) if now == role and line.strip()}
        text = "".join(f"{lines.get(number, '')}\n" for number in range(max(lines, default=-1) + 1))
        try:
            if _toml().loads(text) == self.options(role):
                return text
        except ValueError:
            pass
        raise JobFailed(f"{self.path}: the options of {role} must be one on a line, below one table [{role}]")

    def _lines(self) -> Iterator[tuple[str | None, str]]:
        """Returns each line with its role; that of a table has none."""
        now = "controller"
        for line in self.text.splitlines():
            header = HEADER.match(line)
            now = header[1] if header else now
            yield None if header else now, line

    def _has_header(self, name: str) -> bool:
        return any(header[1] == name for line in self.text.splitlines() if (header := HEADER.match(line)))

    def _complaint(self, role: str, name: str, text: str) -> JobFailed:
        """Names the line with an option of a role, or the table of that name."""
        key = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*[.=]""")
        for number, (now, line) in enumerate(self._lines(), 1):
            header = HEADER.match(line)
            if (now == role and key.match(line)) or (role == "controller" and header and header[1] == name):
                return JobFailed(f"{self.path}, line {number}: {text}")
        return JobFailed(f"{self.path}: {text}")


def _unlike(name: str, value: object) -> str | None:
    """Returns what a value of [ray] must be, if it is something else."""
    default = getattr(Settings(), name)
    if isinstance(default, int):
        return None if _is_amount(value) and isinstance(value, int) else "a number, 0 or more"
    if isinstance(default, float):
        return None if _is_amount(value) else "a number of seconds"
    if isinstance(default, Mapping):
        is_like = isinstance(value, dict) and all(map(_is_amount, value.values()))
        return None if is_like else "amounts of resources, as in { CPU = 1 }"
    if not isinstance(value, str):
        return "a text"
    if name == "strategy":
        return None if value in STRATEGIES else f"one of {', '.join(STRATEGIES)}"
    if name == "ports" and value:
        found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", value)
        is_like = found is not None and 1 <= int(found[1]) <= int(found[2]) <= 65535
        return None if is_like else 'like "7700-7799"'
    return None


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


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
