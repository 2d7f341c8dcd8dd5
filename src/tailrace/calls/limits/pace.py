"""The part of a limit that is used: less at the start, and less after a service has refused calls."""

from __future__ import annotations

from tailrace.clock import SECOND_NS

RAMP_NS = SECOND_NS
RAMP_FROM = 0.25
"""A limit begins with this part of its rate and reaches all of it after ``RAMP_NS``: a service that has just been
started, or whose limit was guessed too high, says so before it is flooded."""

PERIOD_NS = SECOND_NS // 2
INCREASE = 0.05
"""The part of the limit that is added after the first period without a refusal."""

GROWTH = 4
"""How much more is added after each further period without one. A service that has refused calls for a while, and then
no more, is used in full a second later; while it refuses some, such periods do not follow each other."""

TOLERATED = 0.05
"""Share of refused attempts from which on nothing is added. A service that refuses a few calls by chance, whatever the
rate, would otherwise bring the limit down for good."""

DECREASE = 0.3
"""The part that is taken away after a period in which all attempts were refused; in proportion if only some were. In a
second it is about half."""

LEAST = 0.02
"""The smallest part. It lets a limit find out that the service answers again."""

MOST_REFUSED = 0.5
"""If more than this part of the recent attempts was refused, the limit pauses for the time that the service asks for.
"""


class Pace:
    """Additive increase, multiplicative decrease. Counts attempts and refusals in periods of half a second."""

    def __init__(self, now_ns: int) -> None:
        self._began_ns = now_ns
        self._period_ns = now_ns  # when the present period began
        self._part = 1.0
        self._attempts = 0
        self._refused = 0
        self._last = (0, 0)  # attempts and refusals of the period before
        self._added = INCREASE  # after the period before, if nothing was refused
        self._clean = False  # whether it had attempts, and no refusals
        self.paused_until_ns = now_ns

    def factor(self, now_ns: int) -> float:
        """The part of the limit that may be used now; 0 in a pause."""
        self._close_periods(now_ns)
        if now_ns < self.paused_until_ns:
            return 0.0
        begun = min(1.0, (now_ns - self._began_ns) / RAMP_NS)
        return self._part * (RAMP_FROM + (1 - RAMP_FROM) * begun)

    def attempted(self, count: int) -> None:
        self._attempts += count

    def refused(self, count: int, retry_after_s: float, now_ns: int) -> None:
        """A service has refused so many attempts, and wants to be left alone for so long."""
        self._close_periods(now_ns)
        until_ns = now_ns + int(retry_after_s * SECOND_NS)
        if now_ns < self.paused_until_ns:  # these were attempted before the pause
            self.paused_until_ns = self._period_ns = max(self.paused_until_ns, until_ns)
            return
        self._refused += count
        attempts, refused = self._last
        if self._refused + refused > MOST_REFUSED * (self._attempts + attempts):
            self.paused_until_ns = until_ns
            self._close_period()
            self._last = (0, 0)
            self._period_ns = max(now_ns, until_ns)

    def _close_periods(self, now_ns: int) -> None:
        periods = (now_ns - self._period_ns) // PERIOD_NS
        if periods <= 0:
            return
        self._close_period()
        if periods > 1:
            self._part = min(1.0, self._part + INCREASE * (periods - 1))
            self._last = (0, 0)
        self._period_ns += periods * PERIOD_NS

    def _close_period(self) -> None:
        made = self._attempts or self._last[0] or 1  # without attempts, the refusals are of those before
        share = min(1.0, self._refused / made)
        self._added = min(1.0, GROWTH * self._added) if self._clean else INCREASE
        self._clean = self._attempts > 0 and not self._refused
        added = self._added * max(0.0, 1 - share / TOLERATED)
        self._part = min(1.0, max(LEAST, self._part * (1 - DECREASE * share)) + added)
        self._last = (self._attempts, self._refused)
        self._attempts = self._refused = 0
