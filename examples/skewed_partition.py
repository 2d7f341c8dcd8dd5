"""One partition takes three hours: `mapInPandas` works through it row by row, `apply` shares its rows out to all tasks.

The first of four partitions has all the long documents. Both ways call the same function, which waits for as long as a
document is, and have four documents under way at most.
"""

import time
from collections.abc import Iterator
from typing import Any

import tailrace as tr

SCHEMA = "id long, words long"
TASKS = 4


def parse(number: int, pages: int) -> dict[str, int]:
    time.sleep(pages / 1000)
    return {"id": number, "words": 400 * pages}


def by_partition(frames: Iterator[Any]) -> Iterator[Any]:
    for frame in frames:
        words = [parse(row.id, row.pages)["words"] for row in frame.itertuples()]
        yield frame[["id"]].assign(words=words)


def with_pandas(documents: Any) -> Any:
    return documents.mapInPandas(by_partition, SCHEMA)


def with_tailrace(documents: Any) -> Any:
    topology = tr.Topology("documents")
    rows = topology.input("documents")
    shared: tr.OperatorOptions = {"tasks": TASKS, "kind": "blocking", "grouping": tr.pull()}
    rows.map("parse", lambda row: parse(row["id"], row["pages"]), **shared).output("parsed")
    return topology.apply(documents, SCHEMA, workers=2)


def main() -> None:
    spark = tr.local_session(TASKS)
    documents = spark.range(0, 400, 1, TASKS).selectExpr("id", "IF(id < 100, 100, 2) AS pages").cache()
    documents.mapInPandas(lambda frames: frames, documents.schema).count()  # starts Spark's Python processes
    for name, parsed in {"mapInPandas": with_pandas, "apply": with_tailrace}.items():
        began_s = time.monotonic()
        words = sum(row.words for row in parsed(documents).collect())
        print(f"{name}: {words:,} words in {time.monotonic() - began_s:.2f} s")


if __name__ == "__main__":
    main()
