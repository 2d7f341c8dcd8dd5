"""Processing: a topology that forks, after one that Yahoo published as typical of its own.

source -> transform, then two branches: filter -> join1 -> sink1, and join2 (keeps 80%) -> normalise -> sink2.
A stream may feed any number of operators; each gets all of its tuples.
"""

import tailrace as tr

EVENTS = [f"Event-{number:03d}-" + "X" * 30 for number in range(100)]  # 40 characters each
TASKS = 5


def most_of(text: str) -> str:
    return text[: len(text) * 4 // 5]


def keep(text: str) -> bool:
    return True


def same(text: str) -> str:
    return text


def main() -> None:
    topology = tr.Topology("processing")
    events = topology.source("events", tr.from_iterable(EVENTS), tasks=TASKS)
    transformed = events.map("transform", same, tasks=TASKS)

    first: list[str] = []
    joined = transformed.filter("filter", keep, tasks=TASKS).map("join1", same, tasks=TASKS)
    joined.sink("sink1", tr.to_list(first))

    second: list[str] = []
    normal = transformed.map("join2", most_of, tasks=TASKS).map("normalise", str.lower, tasks=TASKS)
    normal.sink("sink2", tr.to_list(second))

    print(topology)
    topology.run(workers=2).awaitTermination()
    print(f"sink1: {len(first)} rows, smallest {min(first)[:9]}, {len(first[0])} characters")
    print(f"sink2: {len(second)} rows, smallest {min(second)[:9]}, {len(second[0])} characters")


if __name__ == "__main__":
    main()
