"""Libra: sparse parameters of PyTorch models on a parameter server.

    import libra_ps as libra

    libra.init()
    model = Model()            # with libra.nn.Embedding in place of torch.nn.Embedding
    opt = libra.optim.wrap(torch.optim.Adam(model.parameters(), lr=1e-3), model)

A module that exists is converted by `model, opt = libra.wrap(model, opt)`. `libra.Client` needs no torch, and this import
imports neither torch nor numpy.
"""

from __future__ import annotations

import importlib

from . import errors
from ._native import VERSION as __version__
from .errors import (
    ClusterEnded,
    Drained,
    Error,
    Forked,
    JobDone,
    JobFailed,
    Mismatch,
    NotFinite,
    NotPushed,
    NotSupported,
    TimeoutError,
    TooLarge,
)
from .session import Session, barrier, end_epoch, flush, init, note, shutdown, stats
from .definitions import Admission, Eviction, Initial, Normal, Rule, Uniform, Zero

# Typing is for type checkers alone: its import would be a quarter of that of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import data, functional, nn, optim
    from .checkpoint import load, save
    from .client import Client
    from .convert import to_torch, wrap

#: Attributes whose modules import torch or numpy, and those modules.
_LAZY = {
    "Client": "client",
    "data": "data",
    "nn": "nn",
    "functional": "functional",
    "optim": "optim",
    "wrap": "convert",
    "to_torch": "convert",
    "save": "checkpoint",
    "load": "checkpoint",
}

_ABSENT = {
    "prefetch": "look-ups read their rows when they run",
    "ddp": "wrap the model in torch.nn.parallel.DistributedDataParallel itself",
    "open": "load the directory with libra_ps.load",
    "amp": "use torch.amp.GradScaler",
    "tables": "libra_ps.stats() has the tables, and libra_ps.save saves them",
    "Table": "modules of libra_ps.nn make tables, and libra_ps.Client().add_table",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise errors.AttributeNotSupported(f"libra_ps.{name} is not there yet: {_ABSENT[name]}")
    if name not in _LAZY:
        raise AttributeError(f"module 'libra_ps' has no attribute {name!r}")
    module = importlib.import_module(f".{_LAZY[name]}", __name__)
    return module if _LAZY[name] == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))


__all__ = [
    "Admission",
    "Client",
    "ClusterEnded",
    "Drained",
    "Error",
    "Eviction",
    "Forked",
    "Initial",
    "JobDone",
    "JobFailed",
    "Mismatch",
    "Normal",
    "NotFinite",
    "NotPushed",
    "NotSupported",
    "Rule",
    "Session",
    "TimeoutError",
    "TooLarge",
    "Uniform",
    "Zero",
    "__version__",
    "barrier",
    "data",
    "end_epoch",
    "errors",
    "flush",
    "functional",
    "init",
    "load",
    "nn",
    "note",
    "optim",
    "save",
    "shutdown",
    "stats",
    "to_torch",
    "wrap",
]
