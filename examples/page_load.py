"""Page Load: a chain of seven operators, after a topology that Yahoo published as typical of its own.

source -> transform (keeps the first 80% of a string) -> filter -> join -> filter -> aggregate (appends 8 characters)
-> sink. Filters and the join let everything pass, so what is measured is the chain.
"""

import tailrace as tr

PAGES = [f"page-{number:03d}-" + "x" * 41 for number in range(200)]  # 50 characters each
TASKS = 5


def transform(page: str) -> str:
    return page[: len(page) * 4 // 5]


def keep(page: str) -> bool:
    return True


def join(page: str) -> str:
    return page


def aggregate(page: str) -> str:
    return page + "-counted"


def main() -> None:
    topology = tr.Topology("page-load")
    stream = topology.source("events", tr.from_iterable(PAGES), tasks=TASKS)
    stream = stream.map("transform", transform, tasks=TASKS).filter("filter1", keep, tasks=TASKS)
    stream = stream.map("join", join, tasks=TASKS).filter("filter2", keep, tasks=TASKS)
    out: list[str] = []
    stream.map("aggregate", aggregate, tasks=TASKS).sink("out", tr.to_list(out))
    print(topology)

    topology.run(workers=2).awaitTermination()
    print(f"{len(out)} pages, {len(set(out))} different, {len(out[0])} characters each, first {min(out)[:8]}")


if __name__ == "__main__":
    main()
