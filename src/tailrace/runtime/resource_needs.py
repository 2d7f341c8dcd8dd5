"""The needs of a run from the system: files and shared memory for its links, memory and processes for its workers.

Each pair of communicating tasks in two workers has a link, so the number of links grows with the square of the tasks.
Needs that the system cannot meet are reported before anything runs: without a link, a run would hang.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace.core.plan.plan import Plan
from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.links.channels import RING_BYTES
from tailrace.topology import Role

OWN_FILES = 128
"""Open files of a worker besides its links: connections being set up, runners, sinks, libraries."""

RING_FILES = 3  # per link through shared memory: the connection, the segment and its bell
WORKER_BYTES = 40 << 20  # of an idle worker
WORKER_THREADS = 16

UNWISE = 16
"""Workers per core above which a warning is logged: they only compete with each other."""

START_S = 0.25
"""CPU time to start a worker, at least: its interpreter and its imports."""

ENOUGH = "one for each core is enough, is `tasks=` meant?"
SHARED_MEMORY = Path("/dev/shm")
CGROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""For cgroup v2 and v1: folder, file of the limit, file of the usage, and the reclaimable page cache in memory.stat."""


@dataclass(frozen=True)
class Links:
    """Numbers of links between one worker and all others."""

    bundles: int
    acks: int

    @property
    def count(self) -> int:
        return self.bundles + self.acks

    @property
    def ring_bytes(self) -> int:
        return self.bundles * RING_BYTES["bundles"] + self.acks * RING_BYTES["acks"]


def links_of(plan: Plan, worker: int) -> Links:
    """An upper bound on a worker's links for bundles and acks. Links for feedback are not counted."""
    bundles = sum(_ends_at(plan, worker, pair) for pair in set(_pairs_of_bundles(plan)))
    acks = sum(_ends_at(plan, worker, pair) for pair in set(_pairs_of_acks(plan)))
    return Links(bundles, acks)


def _pairs_of_bundles(plan: Plan) -> Iterator[tuple[int, int]]:
    for edge in plan.edges:
        if not edge.local:
            for sender in _tasks(plan, edge.upstream):
                for receiver in _tasks(plan, edge.downstream):
                    yield plan.unit_of[sender], receiver


def _pairs_of_acks(plan: Plan) -> Iterator[tuple[int, int]]:
    for operator in plan.operators:
        if operator.operator.role is not Role.SOURCE:
            for task in _tasks(plan, operator.index):
                for owner in plan.owners:
                    yield plan.unit_of[task], owner


def _tasks(plan: Plan, operator: int) -> range:
    first = plan.operators[operator].first_task
    return range(first, first + plan.operators[operator].tasks)


def _ends_at(plan: Plan, worker: int, pair: tuple[int, int]) -> bool:
    homes = plan.home[pair[0]], plan.home[pair[1]]
    return worker in homes and homes[0] != homes[1]


def why_no_rings(links: Links, files: int, free_bytes: int | None) -> str | None:
    """Why a worker's links cannot use shared memory; None if they can.

    Raises TailraceError if there are too few files even for plain connections.
    """
    numbers = f"links={links.count}"
    needed = OWN_FILES + links.count
    if needed > files:
        raise TailraceError(
            f"too many links between tasks for the files that a worker may open: {numbers} needed={needed} "
            f"limit={files}; could operators have fewer tasks, or `ulimit -Hn` be raised?"
        )
    needed = OWN_FILES + RING_FILES * links.count
    if needed > files:
        return f"too few files for so many rings: {numbers} needed={needed} limit={files}; can `ulimit -Hn` be raised?"
    if free_bytes is not None and links.ring_bytes > free_bytes:
        return f"too little memory for so many rings: {numbers} bytes={links.ring_bytes} free={free_bytes}; is it full?"
    return None


def file_limit() -> int:
    """The most files that a process of this user may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1 << 62 if limit == resource.RLIM_INFINITY else limit


def free_shared_bytes() -> int | None:
    """Free bytes of shared memory, limited by the memory of this container; None if neither is known."""
    found: list[int] = []
    try:
        status = os.statvfs(SHARED_MEMORY)
        found.append(status.f_bavail * status.f_frsize)
    except OSError:
        pass
    for folder, limit, use, cached in CGROUPS:
        try:
            found.append(free_of_cgroup(Path(folder), limit, use, cached))
        except (OSError, ValueError):  # no such cgroup, or no limit in it
            continue
    return min(found, default=None)


def free_of_cgroup(folder: Path, limit: str, use: str, cached: str) -> int:
    """Free memory of a cgroup. Its page cache counts as free, because the kernel reclaims it on demand."""
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    used = int((folder / use).read_text()) - int(stat.get(cached, 0))
    return int((folder / limit).read_text()) - used


def check_workers(
    workers: int, cores: int, free_bytes: int | None, processes: int, start_timeout_s: float
) -> str | None:
    """Raise OptionError if this machine cannot hold or start so many workers.

    Returns a warning if it can, but they would compete for its cores.
    """
    megabytes = workers * WORKER_BYTES >> 20
    if free_bytes is not None and megabytes > free_bytes >> 20:
        raise OptionError(
            f"too many workers for the memory of this machine: workers={workers} needed={megabytes} MB "
            f"free={free_bytes >> 20} MB; {ENOUGH}"
        )
    needed = workers * WORKER_THREADS
    if needed > processes:
        raise OptionError(
            f"too many workers for the processes and threads that a user may have: workers={workers} "
            f"needed={needed} limit={processes}; {ENOUGH}"
        )
    start_s = workers * START_S / cores
    if start_s > start_timeout_s:
        raise OptionError(
            f"too many workers for the cores of this machine: workers={workers} cores={cores} start={start_s:.0f} s "
            f"start_timeout_s={start_timeout_s:g}; {ENOUGH}"
        )
    if workers > UNWISE * cores:
        return f"many workers for few cores: workers={workers} cores={cores}; {ENOUGH}"
    return None


def free_bytes() -> int | None:
    """Available memory of this machine; None if it is not known."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def process_limit() -> int:
    """The most processes that this user may have."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return 1 << 62 if limit == resource.RLIM_INFINITY else limit
