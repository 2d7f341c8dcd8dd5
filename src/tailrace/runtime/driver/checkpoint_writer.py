"""A thread of its own writes a run's checkpoint, so that a slow disk holds up nobody but the prefixes it stores."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from tailrace.core.protocol.messages import Persist
from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.driver.checkpoint import Checkpoint

PACE_S = 0.025
"""Between the beginnings of two writes. Source tasks report as often; more of them need not mean more writes."""

CLOSE_S = 2.0
"""A run that is over waits so long for a write that was given up, which keeps the checkpoint locked until it ends."""


class CheckpointWriter:
    """``done`` is called after every write, with what went wrong or None."""

    def __init__(self, checkpoint: Checkpoint, done: Callable[[Exception | None], None]) -> None:
        self._checkpoint = checkpoint
        self._done = done
        self._orders: queue.SimpleQueue[Persist | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tailrace-checkpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def order(self, persist: Persist) -> None:
        """Returns at once."""
        self._orders.put(persist)

    def close(self) -> None:
        """No more orders. The lock is given back when the last write is done, not before: else a later run could begin
        from what is about to change."""
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
