"""When tuples are due. Times are drawn before a simulation, so that all policies see the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError


class Arrivals(Protocol):
    """Law: as many times as asked for, ascending, none negative; equal generators give equal times."""

    def times_ns(self, tuples: int, full_rate_per_s: float, rng: Random) -> list[int]:
        """``full_rate_per_s`` is what the tasks can just sustain."""
        ...


@dataclass(frozen=True)
class _AtRate:
    """By tuples a second, or by load: the share of what the tasks can sustain."""

    rate_per_s: float | None = None
    load: float | None = None

    def __post_init__(self) -> None:
        given = [rate for rate in (self.rate_per_s, self.load) if rate is not None]
        if len(given) != 1 or given[0] <= 0:
            raise OptionError(
                f"arrivals need a rate or a load above zero, not both: rate_per_s={self.rate_per_s} load={self.load}"
            )

    def _gap_ns(self, full_rate_per_s: float) -> float:
        return SECOND_NS / (self.rate_per_s or full_rate_per_s * (self.load or 0))


@dataclass(frozen=True)
class Paced(_AtRate):
    """Tuples are due at even distances. Give a rate or a load, not both.

    Args:
        rate_per_s: tuples a second.
        load: the share of what the tasks can sustain.

    Example:
        >>> from random import Random
        >>> from tailrace.sim import Paced
        >>> Paced(rate_per_s=1000).times_ns(3, 0.0, Random(1))
        [0, 1000000, 2000000]
    """

    def times_ns(self, tuples: int, full_rate_per_s: float, rng: Random) -> list[int]:
        gap_ns = self._gap_ns(full_rate_per_s)
        return [int(index * gap_ns) for index in range(tuples)]


@dataclass(frozen=True)
class Poisson(_AtRate):
    """Tuples are due independently of each other. Give a rate or a load, not both.

    Args:
        rate_per_s: tuples a second on average.
        load: the share of what the tasks can sustain.

    Example:
        >>> from random import Random
        >>> from tailrace.sim import Poisson
        >>> len(Poisson(rate_per_s=1000).times_ns(3, 0.0, Random(1)))
        3
    """

    def times_ns(self, tuples: int, full_rate_per_s: float, rng: Random) -> list[int]:
        per_ns = 1 / self._gap_ns(full_rate_per_s)
        at_ns, times = 0.0, []
        for _ in range(tuples):
            at_ns += rng.expovariate(per_ns)
            times.append(int(at_ns))
        return times


@dataclass(frozen=True)
class Recorded:
    """Tuples are due at the times that were once measured.

    Args:
        at_ns: the time of each tuple, ascending.

    Example:
        >>> from random import Random
        >>> from tailrace.sim import Recorded
        >>> Recorded((0, 5, 9)).times_ns(3, 0.0, Random(1))
        [0, 5, 9]
    """

    at_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.at_ns or self.at_ns[0] < 0 or any(a > b for a, b in zip(self.at_ns, self.at_ns[1:], strict=False)):
            raise OptionError("recorded arrivals are not ascending times from zero on: were they sorted?")

    def times_ns(self, tuples: int, full_rate_per_s: float, rng: Random) -> list[int]:
        if tuples > len(self.at_ns):
            raise OptionError(f"more tuples than recorded arrivals: tuples={tuples} recorded={len(self.at_ns)}")
        return list(self.at_ns[:tuples])
