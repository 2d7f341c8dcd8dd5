"""For all tests of the laboratory: Ctrl-C must mean something, also to what they start."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A shell starts what it puts in the background with SIGINT ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
