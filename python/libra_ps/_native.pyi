from collections.abc import Sequence
from typing import TypeAlias, final

VERSION: str

_Shape: TypeAlias = ShapeRequest
_Request: TypeAlias = Request

class ShapeRequest:
    kind: str
    mode: str
    first: int
    second: int
    includes_last: bool

class Request:
    table: int
    ids: int
    count: int
    is_wide: bool
    padding: int | None
    shape: ShapeRequest
    weights: int
    output: int
    divides_by_frequency: bool

def mark_forked() -> None: ...
@final
class PooledLookup: ...

@final
class Session:
    @staticmethod
    def alone(seed: int, is_sync: bool) -> Session: ...
