"""Fixed timeout: hedge every root that is older than a given age, as far as the budget allows.

Law: that of ``Hedger``.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.errors import OptionError, shorten
from tailrace.policy.hedging.budget import Limits
from tailrace.policy.hedging.timeouts import TimedHedger
from tailrace.policy.numbers import is_number

LONGEST_NS = 24 * 60 * 60 * SECOND_NS


@dataclass(frozen=True)
class FixedTimeout:
    """Hedges roots that are older than a fixed time. ``fixed_timeout()`` makes one."""

    name = "fixed_timeout"
    cancels = True

    timeout_ns: int
    limits: Limits

    @property
    def budget(self) -> float | None:
        return self.limits.share

    def bind(self, rng: Random) -> TimedHedger:
        return TimedHedger(self.timeout_ns, self.limits)


def fixed_timeout(ms: float, *, budget: float | None = None, gate: float | None = None) -> FixedTimeout:
    """Hedge a root when it is older than a fixed time.

    Args:
        ms: milliseconds, above zero and less than a day.
        budget: what hedges may add to the work, as a share of it. ``None``: no limit.
        gate: the utilisation of the busiest operator above which nothing is hedged. ``None``: hedge always.

    Example:
        >>> tr.Tail(hedge=tr.fixed_timeout(20)).names()["replay"]
        'fixed_timeout'
    """
    if not is_number(ms) or not 1 <= ms * MILLISECOND_NS <= LONGEST_NS:
        at_once = is_number(ms) and ms <= 0
        hint = "did you mean replicate(1.0), for a copy at once?" if at_once else "is it a number of milliseconds?"
        raise OptionError(f"a timeout is a time above zero, and less than a day: ms={shorten(ms)}: {hint}")
    return FixedTimeout(round(ms * MILLISECOND_NS), Limits(budget, gate))
