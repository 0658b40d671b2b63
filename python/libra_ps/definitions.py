"""Definitions of tables: initial values, update rules, and what a table is to the session."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: Values of a row at most: those of a message (`ROW_VALUES_MAX` in crates/proto).
ROW_VALUES_MAX = (256 << 20) // 4 - 1024

#: Numbers of rules.
_NUMBERS = {
    "sgd": ("lr",),
    "momentum": ("lr", "momentum", "nesterov"),
    "adagrad": ("lr", "eps"),
    "rowwise_adagrad": ("lr", "eps"),
    "adam": ("lr", "beta1", "beta2", "eps"),
    "adamw": ("lr", "beta1", "beta2", "eps"),
    "ftrl": ("alpha", "beta", "l1", "l2"),
    "rmsprop": ("lr", "decay", "eps"),
}
#: Numbers that any of them may have: those of a schedule, and of weight decay.
_MORE_NUMBERS = ("weight_decay", "warmup", "every", "factor", "steps", "floor")


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
class Admission:
    """Condition for a gradient to make a row: it is the `after`-th for the row, or by `probability`.

    Gradients before are dropped and counted. `keys` is the number of ids whose gradients are counted at once, 5.3 bytes
    each.
    """

    after: int | None = None
    probability: float | None = None
    keys: int = 1 << 20

    def __post_init__(self) -> None:
        if (self.after is None) == (self.probability is None):
            raise ValueError("Admission takes after= or probability=, as in Admission(after=3)")
        if self.after is not None:
            _check_range("after", self.after, 2, 255)
            _check_range("keys", self.keys, 1, 1 << 32)
        elif not 0.0 < number(self.probability, "probability") <= 1.0:
            raise ValueError(f"probability = {self.probability} must be above 0 and at most 1")

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers of a rule."""
        if self.after is not None:
            return {"admission_after": float(self.after), "admission_keys": float(self.keys)}
        assert self.probability is not None
        return {"admission_probability": float(self.probability)}


@dataclass(frozen=True)
class Eviction:
    """Condition for a row to go: without a gradient for `idle_steps` steps of the table; or while there are more than
    `rows_max`, those with the fewest gradients, or with by="norm" those closest to zero.

    Gradients count half after `half_life` steps. A row that went reads as its initial values, and the next gradient makes
    it again. `rows_max` is for each shard.
    """

    idle_steps: int | None = None
    rows_max: int | None = None
    half_life: int = 10_000
    by: str = "use"

    def __post_init__(self) -> None:
        if (self.idle_steps is None) == (self.rows_max is None):
            raise ValueError("Eviction takes idle_steps= or rows_max=, as in Eviction(idle_steps=1000)")
        if self.by not in ("use", "norm"):
            raise ValueError(f'by = "{self.by}" must be "use" or "norm"')
        if self.idle_steps is not None:
            _check_range("idle_steps", self.idle_steps, 1, 1 << 30)
        else:
            _check_range("rows_max", self.rows_max, 1, 1 << 49)
            _check_range("half_life", self.half_life, 1, 1 << 30)

    @property
    def kind(self) -> str:
        """Name of the condition: it decides what is kept with each row."""
        return "idle" if self.idle_steps is not None else self.by

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers of a rule."""
        if self.idle_steps is not None:
            return {"eviction_idle": float(self.idle_steps)}
        assert self.rows_max is not None
        numbers = {"eviction_rows": float(self.rows_max)}
        return numbers if self.by == "norm" else {**numbers, "eviction_half_life": float(self.half_life)}


def _check_range(name: str, value: object, least: int, most: int) -> None:
    if not least <= integer(value, name) <= most:
        raise ValueError(f"{name} = {value} must be from {least} to {most}")


def number(value: object, name: str) -> float:
    if not isinstance(value, (int, float)) or math.isnan(value):
        raise TypeError(f"{name} = {value!r} must be a number")
    return float(value)


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
            known = _NUMBERS.get(self.optimizer)
            if known is not None and name not in (*known, *_MORE_NUMBERS):
                raise ValueError(f"{self.optimizer}: {name} = {value!r} is no number of this rule: it has {', '.join(known)}")


@dataclass(frozen=True)
class Definition:
    """What must be equal for two modules to share a table."""

    rows: int | None
    width: int
    hashed: bool = False
    initial: Initial = field(default_factory=Normal)
    #: Ids whose rows are read, and have no gradient.
    frozen: frozenset[int] = frozenset()
    admission: Admission | None = None
    eviction: Eviction | None = None

    def __post_init__(self) -> None:
        # Integers of numpy and torch cannot be saved.
        if self.rows is not None:
            object.__setattr__(self, "rows", integer(self.rows, "num_embeddings"))
        object.__setattr__(self, "width", integer(self.width, "embedding_dim"))
        if not isinstance(self.initial, Initial):
            raise TypeError(f"init = {self.initial!r} must be made by libra_ps.Normal, Uniform or Zero, as in Normal(0.01)")
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"num_embeddings = {self.rows} must be at least 1, or None for a table without a bound")
        if self.width < 1:
            raise ValueError(f"embedding_dim = {self.width} must be at least 1")
        if self.width > ROW_VALUES_MAX:
            raise ValueError(f"embedding_dim = {self.width} must be at most {ROW_VALUES_MAX:,}, the values of one message")
        if self.hashed and self.rows is not None:
            raise ValueError("hash=True is for tables without a bound: set num_embeddings=None")
        if self.admission is not None and not isinstance(self.admission, Admission):
            raise TypeError(f"admission = {self.admission!r} must be made by libra_ps.Admission, as in Admission(after=3)")
        if self.eviction is not None and not isinstance(self.eviction, Eviction):
            hint = "as in Eviction(idle_steps=1000)"
            raise TypeError(f"eviction = {self.eviction!r} must be made by libra_ps.Eviction, {hint}")
        begin, end = (-(1 << 63), 1 << 63) if self.hashed else (0, self.rows if self.rows is not None else 1 << 56)
        outside = [id for id in self.frozen if not begin <= id < end]
        if outside:
            raise IndexError(f"frozen id {min(outside)} is out of range: ids are from {begin} to {end - 1}")

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers of the rows that are kept, beside those of the rule."""
        admission = self.admission.numbers if self.admission is not None else {}
        return {**admission, **(self.eviction.numbers if self.eviction is not None else {})}

    def difference(self, other: Definition) -> str | None:
        """Returns the first difference from another definition."""
        for name in ("rows", "width", "hashed", "initial", "admission", "eviction"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {theirs}, and was {mine}"
        if self.frozen != other.frozen:
            return f"frozen has {len(other.frozen)} ids, and had {len(self.frozen)} others"
        return None


def frozen_ids(ids: Iterable[object] | None) -> frozenset[int]:
    """Returns the ids of frozen rows, from a list, an array or a tensor."""
    if ids is None:
        return frozenset()
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise TypeError(f"frozen = {ids!r} must be ids, as in frozen=[0, 1]")
    values = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if not isinstance(values, list) or any(isinstance(id, bool) for id in values):
        raise TypeError("frozen must be ids of one dimension: for a mask, take mask.nonzero()[:, 0]")
    return frozenset(integer(id, "frozen") for id in values)


def integer(value: object, name: str) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} = {value!r} must be an integer") from None


def check_name(name: str) -> str:
    """Returns the name of a table if it is one."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"name = {name!r} must be a string that is not empty")
    if "/" in name or not name.isprintable():
        raise ValueError(f"name = {name!r} must not have a slash or a control character: tables are saved in files of their names")
    return name
