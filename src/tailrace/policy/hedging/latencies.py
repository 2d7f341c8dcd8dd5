"""Quantiles of how long roots take by themselves, although the slow ones are hedged.

A root whose hedge was first would have taken *at least* so long: its sample is censored. Leaving such roots out, as
Karn's rule does, leaves out just the slow ones: quantiles fall, the timeout with them, and yet more are left out. To
take them at face value hides the tail that hedging cuts off. Kaplan and Meier's estimate does neither: each sample that
is not censored takes its share of those that took as long or longer. It holds because a hedge knows nothing of the
incarnation it races.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain

ENOUGH = 1_000
"""Samples that a quantile of 99.9% needs. If the last period has fewer, those before it count too ..."""

MAX_PERIODS = 10
"""... up to so many."""

FEWEST = 20
"""Samples below which nothing is said."""

UNSEEN = float("inf")


class Latencies:
    """Samples by period. Law: if none is censored, quantile q of n samples is the ceil(q * n)-th smallest."""

    def __init__(self) -> None:
        self._periods: deque[list[tuple[int, bool]]] = deque([[]], MAX_PERIODS)

    def add(self, latency_ns: int, censored: bool) -> None:
        self._periods[-1].append((latency_ns, censored))

    def end_period(self, shares: Sequence[float]) -> list[float]:
        """The quantiles at these shares, which ascend; ``UNSEEN`` where no sample was so slow for certain."""
        periods = self._periods
        while len(periods) > 1 and sum(map(len, periods)) - len(periods[0]) >= ENOUGH:
            periods.popleft()
        samples = sorted(chain.from_iterable(periods))  # of equal latency the censored come last
        periods.append([])
        return quantiles(samples, shares) if len(samples) >= FEWEST else [UNSEEN] * len(shares)


def quantiles(samples: Sequence[tuple[int, bool]], shares: Iterable[float]) -> list[float]:
    """Of (latency, censored) in ascending order."""
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
