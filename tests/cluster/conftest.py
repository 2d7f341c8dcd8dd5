"""Tests on a cluster in a box. Where there can be none they are skipped, and the end of the session says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.testing.cluster import Box, why_no_box
from tailrace.testing.cluster.leftovers import remains

WHY_NOT = why_no_box()
HERE = "tests/cluster/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if WHY_NOT is not None:
        for item in items:
            if HERE in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=f"no cluster in a box: {WHY_NOT}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [one for one in terminalreporter.stats.get("skipped", []) if HERE in one.nodeid]
    if skipped and WHY_NOT is not None:
        text = f"SKIPPED: {len(skipped)} tests on a cluster in a box, which there cannot be here: {WHY_NOT}"
        terminalreporter.write_line(text, yellow=True, bold=True)


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    """Three hosts. All tests of a module share it; nothing of it may stay."""
    with Box(hosts=3) as box:
        yield box
    assert remains(box.mark) == []
