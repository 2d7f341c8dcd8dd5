"""Fixed timeout: hedge every root that is older than a given age."""

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
    """Hedge what is older than so long."""

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
    """Emit a root again when it is older than ``ms`` milliseconds."""
    if not is_number(ms) or not 1 <= ms * MILLISECOND_NS <= LONGEST_NS:
        at_once = is_number(ms) and ms <= 0
        hint = "did you mean replicate(1.0), for a copy at once?" if at_once else "is it a number of milliseconds?"
        raise OptionError(f"a timeout is a time above zero, and less than a day: ms={shorten(ms)}: {hint}")
    return FixedTimeout(round(ms * MILLISECOND_NS), Limits(budget, gate))
