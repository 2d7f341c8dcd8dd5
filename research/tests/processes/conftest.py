"""Every test here starts real processes, and must leave none behind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kit.runs import MARK, assert_none_left


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The mark of this test's processes. At the end none of them may be left."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    yield value
    assert_none_left(value)
