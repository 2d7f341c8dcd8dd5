"""Signals reach the main thread while it waits, whichever moment they come in."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tailrace.signals import NOTICED_S, Terminated, exit_code, terminable, wait_for

LONG_S = 60.0


@pytest.fixture
def unnoticed() -> Iterator[threading.Thread]:
    """Sends SIGTERM in such a way that it does not wake the main thread, as one does that comes before it sleeps."""
    sender = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
    yield sender
    sender.join()


def test_a_signal_that_does_not_wake_the_main_thread_is_noticed(unnoticed: threading.Thread) -> None:
    began_s = time.monotonic()
    event = threading.Event()
    with pytest.raises(SystemExit) as raised, terminable():
        threading.Timer(0.05, unnoticed.start).start()
        wait_for(event, LONG_S)
    assert raised.value.code == exit_code(Terminated()) == 143
    assert time.monotonic() - began_s < LONG_S / 2


def test_waiting_ends_with_the_event_or_the_time() -> None:
    event = threading.Event()
    for timeout_s in (0, 0.01, 1.5 * NOTICED_S):
        began_s = time.monotonic()
        assert not wait_for(event, timeout_s)
        assert time.monotonic() - began_s >= timeout_s
    threading.Timer(1.5 * NOTICED_S, event.set).start()
    assert wait_for(event, None)
    assert wait_for(event, 0) and wait_for(event, LONG_S)
