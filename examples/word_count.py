"""Word count: running counts per word, each word always in the same task.

Shows a stateful class as an operator, `fields` grouping, and a sink that collects rows on the driver.
"""

from collections import Counter

import tailrace as tr

SENTENCES = [
    "the mill turns the wheel",
    "the wheel turns the stone",
    "the race carries the water away",
]


class RunningCount:
    """One instance per task; what it keeps makes the operator stateful."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, word: str) -> tuple[str, int]:
        self.counts[word] += 1
        return word, self.counts[word]


def main() -> None:
    topology = tr.Topology("word-count")
    lines = topology.source("lines", tr.from_iterable(SENTENCES), tasks=2)
    words = lines.flat_map("split", str.split, tasks=2)
    counts = words.map("count", RunningCount, tasks=2, grouping=tr.fields(lambda word: word), stateful=True)
    updates: list[tuple[str, int]] = []
    counts.sink("out", tr.to_list(updates))
    topology.run(workers=2).awaitTermination()

    totals: dict[str, int] = {}
    for word, count in updates:  # of each word, the last update is the largest
        totals[word] = max(count, totals.get(word, 0))
    for word, count in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:4]:
        print(f"{word} {count}")


if __name__ == "__main__":
    main()
