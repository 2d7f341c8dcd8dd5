"""The values of tuples, and the time that a task of speed 1 takes for each: drawn beforehand, alike for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Protocol

from tailrace.errors import OptionError

Drawn = tuple[list[int], list[int]]
"""Values, which groupings see and may take for keys, and work in nanoseconds, which they do not see."""


class Service(Protocol):
    """Law: as many values and works as asked for, no work below 1; equal generators give equal draws."""

    def draw(self, tuples: int, rng: Random) -> Drawn: ...


def _works(works: Sequence[float]) -> list[int]:
    return [max(1, int(work)) for work in works]


@dataclass(frozen=True)
class Constant:
    """Every tuple takes equally long.

    Args:
        mean_ns: nanoseconds of work.

    Example:
        >>> from random import Random
        >>> from tailrace.sim import Constant
        >>> Constant(1_000_000).draw(2, Random(1))[1]
        [1000000, 1000000]
    """

    mean_ns: int

    def draw(self, tuples: int, rng: Random) -> Drawn:
        return [0] * tuples, [max(1, self.mean_ns)] * tuples


@dataclass(frozen=True)
class Exponential:
    """Tuples take exponentially distributed times; nothing in a tuple says which.

    Args:
        mean_ns: nanoseconds of work on average.

    Example:
        >>> from tailrace.sim import Exponential, Model, Poisson, simulate
        >>> report = simulate(Model(Poisson(load=0.8), Exponential(1_000_000), tuples=1000))
        >>> report.percentile_ns(0.99) > report.percentile_ns(0.5)
        True
    """

    mean_ns: int

    def draw(self, tuples: int, rng: Random) -> Drawn:
        return [0] * tuples, _works([rng.expovariate(1 / self.mean_ns) for _ in range(tuples)])


@dataclass(frozen=True)
class Uniform:
    """Tuples take times that are uniform between two bounds; nothing in a tuple says which.

    Args:
        low_ns: the least work, in nanoseconds.
        high_ns: the most work, in nanoseconds.

    Example:
        >>> from random import Random
        >>> from tailrace.sim import Uniform
        >>> all(10 <= work_ns <= 20 for work_ns in Uniform(10, 20).draw(100, Random(1))[1])
        True
    """

    low_ns: int
    high_ns: int

    def draw(self, tuples: int, rng: Random) -> Drawn:
        return [0] * tuples, _works([rng.uniform(self.low_ns, self.high_ns) for _ in range(tuples)])


@dataclass(frozen=True)
class Lognormal:
    """Tuples take times with a heavy tail; nothing in a tuple says which.

    Args:
        mean_ns: nanoseconds of work on average.
        sigma: how heavy the tail is: 1 puts the 99th percentile at six times the mean.

    Example:
        >>> from random import Random
        >>> from tailrace.sim import Lognormal
        >>> len(Lognormal(1_000_000, 1.0).draw(100, Random(1))[1])
        100
    """

    mean_ns: int
    sigma: float

    def draw(self, tuples: int, rng: Random) -> Drawn:
        mu = math.log(self.mean_ns) - self.sigma**2 / 2
        return [0] * tuples, _works([rng.lognormvariate(mu, self.sigma) for _ in range(tuples)])


@dataclass(frozen=True)
class ByContent:
    """Tuples take times that depend on their content, as in the streams of the OSG paper.

    Items follow a Zipf law. Each has one of a number of costs, which are evenly spaced and dealt to items at random.

    Args:
        items: how many different items there are.
        alpha: the exponent of the Zipf law; 0 makes all items equally frequent.
        costs: how many different costs there are.
        low_ns: the least cost, in nanoseconds.
        high_ns: the highest cost, in nanoseconds.
        jitter: the standard deviation of a tuple's work about its item's cost, relative to it.

    Example:
        >>> from random import Random
        >>> from tailrace.sim import ByContent
        >>> values, works_ns = ByContent(items=10).draw(100, Random(1))
        >>> max(values) < 10
        True
    """

    items: int = 4096
    alpha: float = 1.0
    costs: int = 64
    low_ns: int = 1_000_000
    high_ns: int = 64_000_000
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.items < 1 or self.costs < 1 or self.alpha < 0 or not 0 < self.low_ns <= self.high_ns:
            raise OptionError(f"not a service by content: {self}")

    def draw(self, tuples: int, rng: Random) -> Drawn:
        cost_of = [self._cost_ns(index % self.costs) for index in range(self.items)]
        rng.shuffle(cost_of)
        weights = list(accumulate((rank + 1) ** -self.alpha for rank in range(self.items)))
        values = rng.choices(range(self.items), cum_weights=weights, k=tuples)
        if not self.jitter:
            return values, [cost_of[value] for value in values]
        return values, _works([cost_of[value] * max(0.0, rng.gauss(1, self.jitter)) for value in values])

    def _cost_ns(self, step: int) -> int:
        if self.costs == 1:
            return self.low_ns
        return self.low_ns + (self.high_ns - self.low_ns) * step // (self.costs - 1)


@dataclass(frozen=True)
class Trace:
    """Tuples take the times that were once measured.

    Args:
        values: the key of each tuple.
        works_ns: the work of each tuple, in nanoseconds.

    Example:
        >>> from random import Random
        >>> from tailrace.sim import Trace
        >>> Trace(values=(1, 2), works_ns=(100, 900)).draw(2, Random(1))
        ([1, 2], [100, 900])
    """

    values: tuple[int, ...]
    works_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.works_ns) or min(self.works_ns, default=0) < 1:
            raise OptionError(
                f"a trace needs a duration above zero for every tuple: values={len(self.values)} "
                f"works={len(self.works_ns)}"
            )

    def draw(self, tuples: int, rng: Random) -> Drawn:
        if tuples > len(self.values):
            raise OptionError(f"more tuples than in the trace: tuples={tuples} trace={len(self.values)}")
        return list(self.values[:tuples]), list(self.works_ns[:tuples])
