"""The driver of the row about the journal, as a program: it is killed, and started again on its checkpoint."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

import tailrace as tr
from tailrace_research.bench.dataframe.limit import Asked

WORKERS = 2
CONCURRENCY = 8


def main(options: dict[str, Any]) -> None:
    """Make the calls, and print the pids of workers and how far it is, line by line."""
    calls = tr.Calls(concurrency=CONCURRENCY, retries=5, journal=options["journal"])
    topology = tr.Topology("paid")
    keys = topology.source("keys", tr.from_iterable([f"paid-{number}" for number in range(options["calls"])]))
    asked = keys.map("ask", partial(Asked, options["port"]), tasks=WORKERS, calls=calls)
    asked.map("row", lambda answer: {"answer": answer}).sink("out", tr.to_jsonl(options["out"]))
    run = topology.run(workers=WORKERS, checkpoint=options["checkpoint"], max_deaths=20)
    run.awaitRunning(60)
    while run.isActive:
        print(json.dumps({"pids": run.workerPids(), "durable": (run.lastProgress or {}).get("durable", 0)}), flush=True)
        time.sleep(0.05)
    run.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
