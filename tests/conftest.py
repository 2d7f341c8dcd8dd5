"""For all tests: Ctrl-C must mean something, also to what they start, and no example is late on a busy machine."""

from __future__ import annotations

import signal

from hypothesis import settings


def pytest_configure() -> None:
    settings.register_profile("tailrace", deadline=None)
    settings.load_profile("tailrace")
    # A shell starts what it puts in the background with SIGINT ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
