"""A session of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import libra_ps
import pytest


@pytest.fixture(autouse=True)
def session() -> Iterator[libra_ps.Session]:
    libra_ps.shutdown()
    yield libra_ps.init(seed=7)
    libra_ps.shutdown()
