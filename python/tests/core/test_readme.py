"""The list of tests by case."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_the_list_names_tests_that_exist() -> None:
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/test_\w+\.py)::(test_\w+)`", text)
    assert len(named) > 60
    missing = [
        f"{file}::{name}" for file, name in named if f"def {name}(" not in (TESTS / file).read_text(encoding="utf-8")
    ]
    assert not missing
