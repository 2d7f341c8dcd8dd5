"""Estimates what a tuple will cost, by its content and by task, from what earlier tuples cost.

A Count-Min sketch gives a rare item the average of all items that share its cells. Here items that occur often are
counted exactly, and each estimate is drawn towards the overall mean as far as the item's own history is short or noisy.
"""

from __future__ import annotations

MEMORY = 64
"""Samples of one item that its mean remembers. An old sample counts half after about 44 more."""

LONG_MEMORY = 4096
"""Samples that the overall mean and the variances remember."""

SPEED_MEMORY = 64
"""Samples of one task that its speed is estimated from."""


class CostTable:
    """Mean costs of frequent items and of all others, and how slow each task is compared with the average task.

    Law: an estimate lies between the smallest and the largest cost that was added, corrected for speed.
    """

    def __init__(self, tasks: int, capacity: int) -> None:
        self._capacity = capacity
        self._items: dict[int, list[float]] = {}  # item -> [samples remembered, mean, hits since the last thinning]
        self._samples = 0
        self._mean = 0.0
        self._spread = 0.0  # mean square about the overall mean
        self._noise = 0.0  # mean square about an item's own mean
        self._noise_samples = 0
        self._slow = [1.0] * tasks
        self._slow_samples = [0] * tasks
        self._average_slow = 1.0

    def __len__(self) -> int:
        return len(self._items)

    def slowness(self, task: int) -> float:
        """How long this task takes for what the average task does in 1."""
        return self._slow[task] / self._average_slow

    def estimate(self, item: int) -> float:
        """The expected cost at a task of average speed. 0 if nothing is known yet."""
        return self._cost(self._items.get(item))

    def _cost(self, known: list[float] | None) -> float:
        if known is None:
            return self._mean
        samples, mean, _ = known
        doubt = self._doubt()
        return (samples * mean + doubt * self._mean) / (samples + doubt)

    def costs(self, item: int) -> list[float]:
        """The expected cost at each task."""
        cost = self.estimate(item) / self._average_slow
        return [cost * slow for slow in self._slow]

    def add(self, item: int, task: int, cost: float) -> None:
        """A tuple with ``item`` took ``task`` this long."""
        known, samples = self._items.get(item), self._samples
        if samples:
            self._judge_speed(task, cost, self._cost(known))
            cost *= self._average_slow / self._slow[task]
        if samples < LONG_MEMORY:
            self._samples = samples = samples + 1
        off = cost - self._mean
        self._mean += off / samples
        self._spread += (off * off - self._spread) / samples
        self._learn(item, known, cost)

    def _doubt(self) -> float:
        """The weight of the overall mean in samples: noise over the variance between items, as in empirical Bayes."""
        noise = self._noise
        between = self._spread - noise
        return noise / between if noise < MEMORY * between else float(MEMORY)

    def _judge_speed(self, task: int, cost: float, expected: float) -> None:
        if expected <= 0:
            return
        samples, slow = self._slow_samples[task], self._slow[task]
        if samples < SPEED_MEMORY:
            self._slow_samples[task] = samples = samples + 1
        change = (cost / expected - slow) / (samples + 1)
        self._slow[task] = slow + change
        self._average_slow += change / len(self._slow)

    def _learn(self, item: int, known: list[float] | None, cost: float) -> None:
        if known is None:
            if len(self._items) >= self._capacity:
                self._thin_out()
            self._items[item] = [1, cost, 1]
            return
        samples, mean, hits = known
        off = cost - mean
        if self._noise_samples < LONG_MEMORY:
            self._noise_samples += 1
        self._noise += (off * off * samples / (samples + 1) - self._noise) / self._noise_samples
        if samples < MEMORY:
            known[0] = samples = samples + 1
        known[1] = mean + off / samples
        known[2] = hits + 1

    def _thin_out(self) -> None:
        """Halve all hits until some item has none, so that items go that were frequent only long ago."""
        size = len(self._items)
        while len(self._items) == size:
            for known in self._items.values():
                known[2] //= 2
            self._items = {item: known for item, known in self._items.items() if known[2]}
