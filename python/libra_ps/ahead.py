"""Reads of a forward pass in one turn: of the rows that its look-ups will need, and of dense parameters."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .functional import NativeRequest
    from .session import Session

#: More look-ups of one forward pass are not noted.
_NOTED_MAX = 1024


class ReadAhead:
    """Look-ups of a model whose ids are inputs of the model: those of one forward pass are expected in the next.

    A look-up that is expected and does not come has read rows for nothing; one that is not expected reads its rows itself.
    """

    def __init__(self, session: Session, model: torch.nn.Module) -> None:
        self._session = session
        #: Positions of inputs of the last forward pass, by address and number of ids.
        self._positions: dict[tuple[int, int], int] = {}
        self._noted: list[NativeRequest] = []
        self._model = weakref.ref(model)
        hooks: Any = model
        # Copies of the model have the hook, too. A function is not copied with them.
        hooks.register_forward_pre_hook(lambda *given: self._before_forward(*given), with_kwargs=True)

    def note(self, request: NativeRequest) -> None:
        """Takes note of a look-up."""
        if len(self._noted) < _NOTED_MAX:
            self._noted.append(request)

    def _before_forward(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self._session
        if session.is_closed or module is not self._model():
            return
        session.ahead = None
        if torch.compiler.is_compiling() or not module.training or not session.has_begun:
            session.refresh()
            return
        noted, positions = self._noted, self._positions
        found = dict.fromkeys((request[0], positions.get(request[1:3]), request[4]) for request in noted)
        noted.clear()
        inputs = list(_inputs((*args, *kwargs.values())))
        self._positions = {(ids.data_ptr(), ids.numel()): at for at, ids in enumerate(inputs)}
        session.ahead = self
        expected = []
        for table, at, padding in found:
            if at is not None and at < len(inputs):
                ids = inputs[at]
                expected.append((table, ids.data_ptr(), ids.numel(), ids.dtype is torch.int64, padding))
        session.read_ahead(expected)


def _inputs(values: Iterable[Any], depth: int = 0) -> Iterator[Tensor]:
    """Returns the tensors that can be ids as they are."""
    for value in values:
        if isinstance(value, Tensor):
            if value.dtype in (torch.int64, torch.int32) and value.is_cpu and not value.is_nested and value.is_contiguous():
                yield value
        elif depth < 2 and isinstance(value, Mapping):
            yield from _inputs(value.values(), depth + 1)
        elif depth < 2 and isinstance(value, (tuple, list)):
            yield from _inputs(value, depth + 1)


__all__ = ["ReadAhead"]
