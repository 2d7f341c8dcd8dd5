"""Quantiles of how long roots would take without hedges, although the slow ones are hedged.

A root that a hedge completed would have taken *at least* that long: its sample is censored. To leave censored samples
out, as Karn's rule does, leaves out just the slow roots: the quantiles fall, the timeout with them, and more samples
are left out. To take them at face value hides the tail that hedging cuts off. The estimate of Kaplan and Meier does
neither: each uncensored sample takes its share of all that took as long or longer. It is valid because whether a hedge
is fast does not depend on the emission that it races.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain

ENOUGH = 1_000
"""Samples that an estimate of p99.9 needs. If the last period has fewer, earlier periods are used as well."""

MAX_PERIODS = 10
"""The most periods that are used."""

FEWEST = 20
"""With fewer samples there is no estimate."""

UNSEEN = float("inf")


class Latencies:
    """Samples by period. Law: if none is censored, quantile q of n samples is the ceil(q * n)-th smallest."""

    def __init__(self) -> None:
        self._periods: deque[list[tuple[int, bool]]] = deque([[]], MAX_PERIODS)

    def add(self, latency_ns: int, censored: bool) -> None:
        self._periods[-1].append((latency_ns, censored))

    @property
    def in_period(self) -> int:
        """Samples since the last end of a period."""
        return len(self._periods[-1])

    def end_period(self, shares: Sequence[float]) -> list[float]:
        """The quantiles at ``shares``, which must ascend; ``UNSEEN`` where no uncensored sample was that slow."""
        periods = self._periods
        while len(periods) > 1 and sum(map(len, periods)) - len(periods[0]) >= ENOUGH:
            periods.popleft()
        samples = sorted(chain.from_iterable(periods))  # among equal latencies, censored samples come last
        periods.append([])
        return quantiles(samples, shares) if len(samples) >= FEWEST else [UNSEEN] * len(shares)


def quantiles(samples: Sequence[tuple[int, bool]], shares: Iterable[float]) -> list[float]:
    """The quantiles of (latency, censored) pairs, which must be sorted, at ascending shares."""
    found: list[float] = []
    position, surviving, latency_ns = 0, 1.0, UNSEEN
    for share in shares:
        while surviving > 1 - share + 1e-9 and position < len(samples):
            latency_ns, censored = samples[position]
            if not censored:
                surviving *= 1 - 1 / (len(samples) - position)
            position += 1
        found.append(latency_ns if surviving <= 1 - share + 1e-9 else UNSEEN)
    return found
