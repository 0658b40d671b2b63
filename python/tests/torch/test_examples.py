"""What the examples show."""

from __future__ import annotations

import difflib
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"


def test_neumf_differs_from_plain_torch_in_three_lines() -> None:
    def code(name: str) -> list[str]:
        _, _, text = (EXAMPLES / name).read_text().split('"""', 2)
        return text.splitlines()

    lines = difflib.ndiff(code("neumf_torch.py"), code("neumf.py"))
    assert len([line for line in lines if line.startswith("+ ")]) == 3
