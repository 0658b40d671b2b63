"""Definitions of tables: initial values, update rules, and what a table is to the session."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Initial:
    """Values of rows before their first gradient."""

    kind: str
    value: float


def Normal(deviation: float = 1.0) -> Initial:
    """Normal with mean 0."""
    return Initial("normal", float(deviation))


def Uniform(bound: float) -> Initial:
    """Evenly spread from -bound to bound."""
    return Initial("uniform", float(bound))


def Zero() -> Initial:
    """All zero."""
    return Initial("zero", 0.0)


@dataclass(frozen=True)
class Rule:
    """A formula that changes rows by their gradients, with its numbers. Made by the functions of `libra_ps.optim`."""

    optimizer: str
    numbers: Mapping[str, float]
    decay: str = "none"

    def __post_init__(self) -> None:
        for name, value in self.numbers.items():
            if not isinstance(value, (int, float)):
                raise TypeError(f"{self.optimizer}: {name} = {value!r} must be a number")


@dataclass(frozen=True)
class Definition:
    """What must be equal for two modules to share a table."""

    rows: int | None
    width: int
    hashed: bool = False
    initial: Initial = field(default_factory=Normal)

    def __post_init__(self) -> None:
        # Integers of numpy and torch cannot be saved.
        if self.rows is not None:
            object.__setattr__(self, "rows", _integer(self.rows, "num_embeddings"))
        object.__setattr__(self, "width", _integer(self.width, "embedding_dim"))
        if not isinstance(self.initial, Initial):
            raise TypeError(f"init = {self.initial!r} must be made by libra_ps.Normal, Uniform or Zero, as in Normal(0.01)")
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"num_embeddings = {self.rows} must be at least 1, or None for a table without a bound")
        if self.width < 1:
            raise ValueError(f"embedding_dim = {self.width} must be at least 1")
        if self.hashed and self.rows is not None:
            raise ValueError("hash=True is for tables without a bound: set num_embeddings=None")

    def difference(self, other: Definition) -> str | None:
        """Returns the first difference from another definition."""
        for name in ("rows", "width", "hashed", "initial"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {theirs}, and was {mine}"
        return None


def _integer(value: object, name: str) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} = {value!r} must be an integer") from None


def check_name(name: str) -> str:
    """Returns the name of a table if it is one."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"name = {name!r} must be a string that is not empty")
    if "/" in name or "\0" in name:
        raise ValueError(f"name = {name!r} must not have a slash: tables are saved in files of their names")
    return name
