"""Exit codes of programs that have lost their cluster."""

from __future__ import annotations

import os
import sys

from . import errors

# Typing is for type checkers alone.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import NoReturn

#: Code with which a process ends that an engine is to start again, as that of `libra worker`.
AGAIN = 75

_is_chained = False


def end_without_pushes(error: errors.Error, *, has_lost: bool) -> NoReturn:
    """Ends this process with the code of a failure: the interpreter has none for what happens at its exit."""
    lost = "pushes of this worker are lost: " if has_lost else ""
    print(f"libra_ps: {lost}{error}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(AGAIN if _is_lost(error) else 1)


def chain_hook(has_session: Callable[[], bool]) -> None:
    """Lets an exception that nothing catches end the process with code 75, while there is a session that has lost its cluster."""
    global _is_chained
    if _is_chained:
        return
    _is_chained = True
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        is_interactive = hasattr(sys, "ps1") or sys.flags.interactive
        if has_session() and _is_lost(error) and not is_interactive:
            # The interpreter exits as after any other.
            raise SystemExit(AGAIN)

    sys.excepthook = hook


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, errors.ClusterEnded) and error.is_lost
