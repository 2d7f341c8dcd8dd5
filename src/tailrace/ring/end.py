"""An end of a ring: calls that wait, around a core in C that never does.

Waiting is: try, announce that we wait, look once more, sleep. See ``_wait.h`` for why no wake-up is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.errors import RingClosed, RingError
from tailrace.ring import layout
from tailrace.ring.segment import Segment
from tailrace.ring.statistics import RingStatistics

if TYPE_CHECKING:
    from tailrace.ring._ring import Pair, Shared

NAP_NS = 100 * MILLISECOND_NS
"""The longest sleep at a time. A peer that dies wakes nobody, so we look up now and then."""

BUSY_S = 0.0002
"""How long to leave a ring alone when someone else is at it."""

Core = TypeVar("Core", "Pair", "Shared")
Result = TypeVar("Result")


class RingEnd(Generic[Core]):
    """Law: what ``put`` took comes out of ``get`` once, in the order of its producer, or is counted as given up."""

    def __init__(self, segment: Segment, core: Core) -> None:
        self.segment = segment
        self.core: Core = core  # for callers that wait in their own way
        self._look_up_ns = 0  # when it is time to; kept from call to call, as each may be shorter than a nap

    # -- writing

    def put(self, payload: bytes | memoryview, timeout_s: float, target: int = 0) -> bool:
        """False if there was no room for so long."""
        if self.core.write(target, payload) > 0:  # most calls end here
            return True
        return self._put(lambda: self.core.write(target, payload), memoryview(payload).nbytes, timeout_s)

    def _put(self, write: Callable[[], int], size: int, timeout_s: float) -> bool:
        def attempt() -> bool | None:
            result = write()
            if result == layout.TOO_LARGE:
                limit = layout.largest_payload(self.segment.capacity)
                raise RingError(f"record too large for the ring: bytes={size} limit={limit}; make the ring larger?")
            if result == layout.CLOSED:
                raise RingClosed("the ring is closed")
            if result == layout.CORRUPT:
                raise ValueError("corrupted ring")
            return True if result else None

        done = self._wait(
            attempt,
            lambda: self.core.want_room(size, layout.MODE_SLEEP),
            lambda nap: self.core.sleep(1, nap),
            timeout_s,
        )
        return done is not None

    # -- reading

    def get(self, timeout_s: float) -> tuple[int, bytes] | None:
        """The next (target, payload); None if nothing came for so long."""
        records = self.get_many(1, timeout_s)
        return records[0] if records else None

    def get_many(self, limit: int, timeout_s: float) -> list[tuple[int, bytes]]:
        """What is there, up to a limit; waits for the first only."""
        records = self._get(lambda: self.core.read(limit), timeout_s)
        self.core.release()
        return records

    def look(self, limit: int, timeout_s: float) -> list[tuple[int, memoryview]]:
        """The same in place. The views are good until ``release``, which gives the space back."""
        return self._get(lambda: self.core.look(limit), timeout_s)

    def release(self) -> None:
        self.core.release()

    def _get(self, read: Callable[[], list[Result]], timeout_s: float) -> list[Result]:
        def attempt() -> list[Result] | None:
            records = read()
            if not records and self.core.closed():
                records = read()  # what was written before it was closed
                if not records and not self._unfinished():
                    raise RingClosed("the ring is closed")
            return records or None

        found = self._wait(
            attempt, lambda: self.core.want_data(layout.MODE_SLEEP), lambda nap: self.core.sleep(0, nap), timeout_s
        )
        return found or []

    def _unfinished(self) -> bool:
        """Whether a record that is not ready may yet become so."""
        return False

    def _look_up(self) -> None:
        """Called now and then while there is nothing to do."""

    def _wait(
        self,
        attempt: Callable[[], Result | None],
        may_sleep: Callable[[], bool],
        sleep: Callable[[int], None],
        timeout_s: float,
    ) -> Result | None:
        try:
            result = attempt()  # before the clock is looked at
            now_ns = time.monotonic_ns()
            deadline_ns = now_ns + int(timeout_s * SECOND_NS)
            while result is None:
                if now_ns >= self._look_up_ns:
                    self._look_up_ns = now_ns + NAP_NS
                    self._look_up()
                elif now_ns >= deadline_ns:
                    return None
                elif may_sleep():
                    sleep(min(deadline_ns - now_ns, NAP_NS))
                elif (result := attempt()) is None:
                    time.sleep(BUSY_S)
                result = attempt() if result is None else result
                now_ns = time.monotonic_ns()
        except ValueError as error:
            raise RingError(f"{error}: path={self.segment.path}; did something else write there?") from error
        return result

    # -- the end

    def close(self) -> None:
        """No more may be written, by anyone; what is there can be read."""
        self.core.close()

    def detach(self) -> None:
        """Unmap. What views are still around keep the memory until they are gone."""
        del self.core
        self.segment.close()

    def statistics(self) -> RingStatistics:
        return RingStatistics(*self.core.statistics())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()
