"""A workload on workers: what became of every tuple, read from the notes that its tasks took."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.clock import SECOND_NS
from tailrace.errors import TailraceError
from tailrace.policy import Grouping, shuffle
from tailrace_research.bench.workloads.hosting import host
from tailrace_research.bench.workloads.spending import Means, Sleeping
from tailrace_research.bench.workloads.working import Arrival, Execution, arrivals, executions, latencies_ns
from tailrace_research.bench.workloads.workload import Setup, Workload

SPARE_S = 60.0
"""Beyond twice what a stream should take: a run that takes longer does not keep up, or hangs."""


@dataclass(frozen=True)
class Outcome:
    """Latencies from the moment tuples were due until all that comes of them had come to an end."""

    latencies_ns: Sequence[int] = field(repr=False)  # in the order in which they were due
    executions: Sequence[Execution] = field(repr=False)
    progress: dict[str, Any] = field(repr=False)
    arrivals: Sequence[Arrival] = field(repr=False, default=())


def run_workload(
    workload: Workload,
    grouping: Grouping | None = None,
    *,
    means: Means | None = None,
    workers: int = 2,
    **options: Any,
) -> Outcome:
    """Run it to its end, on workers that ``hosted_by`` is about. ``options`` are those of a run."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        topology = workload.topology(Setup(folder, grouping or shuffle(), means or Sleeping()))
        run = topology.run(host(), workers=workers, **options)
        timeout_s = 2 * workload.due_ns[-1] / SECOND_NS + SPARE_S
        if not run.awaitTermination(timeout_s):
            run.stop(0.0)
            raise TailraceError(f"a workload did not finish: workload={workload.name} timeout_s={timeout_s:.0f}")
        return outcome_of(workload, Path(folder), run.lastProgress)


def outcome_of(workload: Workload, folder: Path, progress: dict[str, Any]) -> Outcome:
    arrived = arrivals(folder)
    found = latencies_ns(arrived)
    lost = [index for index in range(len(workload.due_ns)) if index not in found]
    if lost:
        raise TailraceError(f"a workload lost tuples: workload={workload.name} lost={len(lost)} first={lost[0]}")
    return Outcome([found[index] for index in sorted(found)], executions(folder), progress, arrived)
