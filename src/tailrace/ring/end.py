"""An end of a ring: blocking calls around a C core that never blocks.

To wait is to try, announce the wait, try once more, and sleep. ``_wait.h`` explains why no wake-up is lost.
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
"""The longest single sleep. A peer that dies sends no wake-up, so a waiting end checks for dead peers this often."""

BUSY_S = 0.0002
"""Pause between attempts while another process has the turn at the ring."""

Core = TypeVar("Core", "Pair", "Shared")
Result = TypeVar("Result")


class RingEnd(Generic[Core]):
    """The blocking interface of both kinds of rings.

    Law: what ``put`` accepts comes out of ``get`` once, in the order of its producer, or is counted as given up.
    """

    def __init__(self, segment: Segment, core: Core) -> None:
        self.segment = segment
        self.core: Core = core  # for callers that do their own waiting
        self._look_up_ns = 0  # when to check for dead peers; kept between calls, as each may be shorter than a nap

    # -- writing

    def put(self, payload: bytes | memoryview, timeout_s: float, target: int = 0) -> bool:
        """Write a record. False if there was no room within the timeout."""
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
        """The next (target, payload); None if there was none within the timeout."""
        records = self.get_many(1, timeout_s)
        return records[0] if records else None

    def get_many(self, limit: int, timeout_s: float) -> list[tuple[int, bytes]]:
        """All records that are ready, up to a limit. Waits only for the first."""
        records = self._get(lambda: self.core.read(limit), timeout_s)
        self.core.release()
        return records

    def look(self, limit: int, timeout_s: float) -> list[tuple[int, memoryview]]:
        """Like ``get_many``, without copying. The views are valid until ``release``, which frees the space."""
        return self._get(lambda: self.core.look(limit), timeout_s)

    def release(self) -> None:
        self.core.release()

    def _get(self, read: Callable[[], list[Result]], timeout_s: float) -> list[Result]:
        def attempt() -> list[Result] | None:
            records = read()
            if not records and self.core.closed():
                records = read()  # records written before the ring was closed
                if not records and not self._unfinished():
                    raise RingClosed("the ring is closed")
            return records or None

        found = self._wait(
            attempt, lambda: self.core.want_data(layout.MODE_SLEEP), lambda nap: self.core.sleep(0, nap), timeout_s
        )
        return found or []

    def _unfinished(self) -> bool:
        """Whether a record that is not ready may still become so."""
        return False

    def _look_up(self) -> None:
        """Called every ``NAP_NS`` while waiting. Shared rings check for dead peers here."""

    def _wait(
        self,
        attempt: Callable[[], Result | None],
        may_sleep: Callable[[], bool],
        sleep: Callable[[int], None],
        timeout_s: float,
    ) -> Result | None:
        try:
            result = attempt()  # at least once, even with a timeout of 0
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
        """Refuse further writes by any process. Records that are in the ring can still be read."""
        self.core.close()

    def detach(self) -> None:
        """Unmap the memory. It stays mapped as long as a view of a record exists."""
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
