"""A session of its own for each test, and the names of what was skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libra_ps
import pytest


@pytest.fixture(autouse=True)
def session() -> Iterator[libra_ps.Session]:
    libra_ps.shutdown()
    yield libra_ps.init(seed=7)
    libra_ps.shutdown()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Prints the last line of a run: the modules and programs for want of which tests were skipped."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in skipped if isinstance(report.longrepr, tuple)]
    if reasons:
        modules = (re.match(r"could not import '([^']+)'", reason) for reason in reasons)
        names = {module[1] if module else reason.split(":")[0] for module, reason in zip(modules, reasons, strict=True)}
        reporter.write_line(f"SKIPPED: {', '.join(sorted(names))}")
