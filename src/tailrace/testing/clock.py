"""A clock that moves only when a test moves it."""

from __future__ import annotations


class ManualClock:
    """A clock for tests, which moves only when it is told to. Call it to read the time.

    Args:
        start_ns: the time that it shows at first, in nanoseconds.

    Example:
        >>> from tailrace.testing import ManualClock
        >>> clock = ManualClock()
        >>> clock.advance(5)
        >>> clock()
        5
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def __call__(self) -> int:
        return self._now_ns

    def advance(self, ns: int) -> None:
        """Let ``ns`` nanoseconds pass."""
        if ns < 0:
            raise ValueError(f"a monotonic clock cannot go back: ns={ns}: are the two times swapped?")
        self._now_ns += ns

    def __repr__(self) -> str:
        return f"ManualClock({self._now_ns})"
