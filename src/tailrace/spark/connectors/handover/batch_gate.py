"""Lets a query be stopped between two batches, or in the middle of one that takes too long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import TailraceError


class BatchGate:
    """Where the thread that runs batches and the threads that stop the query meet.

    No thread waits for a batch to begin, and none holds a lock while it stops the query: ``query.stop()`` returns only
    when the thread of the batches is done, which must therefore not wait for the one that stops.
    """

    def __init__(self) -> None:
        self.shut = False  # no more batches begin
        self._running = False
        self._changed = threading.Condition()

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Around a batch. Raises TailraceError at once if the gate is shut."""
        with self._changed:
            if self.shut:
                raise TailraceError(f"the query is being stopped: batch={number}")
            self._running = True
        try:
            yield
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()

    def shut_after_batch(self, timeout_s: float) -> bool:
        """Let no more batches begin, and wait for the one that runs. False: it still does."""
        with self._changed:
            self.shut = True
            return self._changed.wait_for(lambda: not self._running, timeout_s)
