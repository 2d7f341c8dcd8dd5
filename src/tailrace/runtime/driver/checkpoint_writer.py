"""Writes the checkpoint of a run in a thread of its own, so that a slow disk does not block the coordinator."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from tailrace.core.protocol.messages import Persist
from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.driver.checkpoint import Checkpoint

PACE_S = 0.025
"""Minimum time between the starts of two writes. It bounds the rate of writes, however many source tasks report."""

CLOSE_S = 2.0
"""How long the end of a run waits for a write in progress. The checkpoint stays locked until that write returns."""


class CheckpointWriter:
    """Calls ``done`` in its own thread after every write, with the error or None."""

    def __init__(self, checkpoint: Checkpoint, done: Callable[[Exception | None], None]) -> None:
        self._checkpoint = checkpoint
        self._done = done
        self._orders: queue.SimpleQueue[Persist | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tailrace-checkpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def order(self, persist: Persist) -> None:
        """Queue a write. Never blocks."""
        self._orders.put(persist)

    def close(self) -> None:
        """Accept no more writes. The checkpoint's lock is released when the last write has returned, not earlier: a
        later run could otherwise read a file that is about to be replaced."""
        self._orders.put(None)
        if self._thread.ident is None:
            self._checkpoint.close()
        else:
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        began_s = 0.0
        while (persist := self._orders.get()) is not None:
            time.sleep(max(0.0, began_s + PACE_S - time.monotonic()))
            began_s = time.monotonic()
            self._done(self._write(persist))
        self._checkpoint.close()

    def _write(self, persist: Persist) -> Exception | None:
        try:
            self._checkpoint.store(persist.positions, persist.next_epoch)
        except OSError as error:
            return OptionError(f"checkpoint cannot be written: {error}; is its folder there, and is there space?")
        except Exception as error:
            return TailraceError(f"checkpoint cannot be written: {error!r}")
        return None
