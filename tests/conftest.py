"""For all tests: Ctrl-C must mean something, also to what they start, no example is late on a busy machine, and no
test leaves a folder on ``sys.path``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings


def pytest_configure() -> None:
    settings.register_profile("tailrace", deadline=None)
    settings.load_profile("tailrace")
    # A shell starts what it puts in the background with SIGINT ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_path() -> Iterator[None]:
    """The command puts a script's folder on the path. A ``numbers.py`` there would be found by tests that follow."""
    before = list(sys.path)
    yield
    sys.path[:] = before
