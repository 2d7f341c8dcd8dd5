"""What cannot be had of the system is said before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.errors import OptionError, TailraceError
from tailrace.policy import local
from tailrace.runtime.resource_needs import (
    Links,
    check_workers,
    file_limit,
    free_of_cgroup,
    free_shared_bytes,
    links_of,
    why_no_rings,
)
from tailrace.sim.faults.topologies import SimSink, SimSource, mark
from tailrace.topology import Topology

MANY = 1 << 62


def _plan(tasks: int, workers: int, grouping: object = None) -> Plan:
    topology = Topology("t")
    some = topology.source("s", SimSource("s", 5), tasks=1).map("a", mark("a"), tasks=tasks)
    some.map("b", mark("b"), tasks=tasks, grouping=grouping).sink("out", SimSink(), tasks=1)  # type: ignore[arg-type]
    return make_plan(topology, workers)


def test_links_grow_with_the_square_of_the_tasks_and_end_at_two_workers() -> None:
    few, many = (links_of(_plan(tasks, 2), 0) for tasks in (8, 16))
    assert few.bundles == links_of(_plan(8, 2), 1).bundles, "each link of two workers has an end in both"
    assert few.bundles >= 2 * 4 * 4, "from four of the first to four of the second, and back"
    assert 3 * few.count < many.count < 5 * few.count
    assert links_of(_plan(8, 1), 0) == Links(0, 0)
    assert links_of(_plan(8, 2, local()), 0).bundles < few.bundles / 2


def test_too_few_files_for_rings_leave_tcp_and_too_few_for_that_are_refused() -> None:
    links = Links(bundles=8192, acks=128)
    assert why_no_rings(links, MANY, None) is None
    assert why_no_rings(links, 20_000, None) == (
        "too few files for so many rings: links=8320 needed=25088 limit=20000; can `ulimit -Hn` be raised?"
    )
    with pytest.raises(TailraceError) as refused:
        why_no_rings(links, 4096, None)
    assert str(refused.value) == (
        "too many links between tasks for the files that a worker may open: links=8320 needed=8448 limit=4096; "
        "could operators have fewer tasks, or `ulimit -Hn` be raised?"
    )


def test_too_little_shared_memory_leaves_tcp() -> None:
    links = Links(bundles=4, acks=1)
    why = why_no_rings(links, MANY, 1 << 20)
    assert why == "too little memory for so many rings: links=5 bytes=1114112 free=1048576; is it full?"
    assert why_no_rings(links, MANY, 2 << 20) is None


def test_workers_that_a_machine_cannot_hold_are_refused_and_unwise_ones_are_named() -> None:
    assert check_workers(8, 2, 1 << 40, MANY, 60) is None
    assert check_workers(400, 2, 1 << 40, MANY, 60) == (
        "many workers for few cores: workers=400 cores=2; one for each core is enough, is `tasks=` meant?"
    )
    with pytest.raises(OptionError, match=r"memory of this machine: workers=500 needed=20000 MB free=4096 MB; one for"):
        check_workers(500, 2, 4 << 30, MANY, 60)
    with pytest.raises(OptionError, match=r"threads that a user may have: workers=500 needed=8000 limit=4096; one for"):
        check_workers(500, 2, None, 4096, 60)


def test_workers_that_cannot_start_in_time_are_refused() -> None:
    with pytest.raises(OptionError) as refused:
        check_workers(500, 2, None, MANY, 60)
    assert str(refused.value) == (
        "too many workers for the cores of this machine: workers=500 cores=2 start=62 s start_timeout_s=60; "
        "one for each core is enough, is `tasks=` meant?"
    )
    assert check_workers(500, 64, None, MANY, 60) is None


def test_a_container_is_not_full_of_files_that_it_has_read(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("990\n")
    (tmp_path / "memory.stat").write_text("anon 90\ninactive_file 900\n")
    assert free_of_cgroup(tmp_path, "memory.max", "memory.current", "inactive_file") == 910
    (tmp_path / "memory.max").write_text("max\n")
    with pytest.raises(ValueError, match="max"):
        free_of_cgroup(tmp_path, "memory.max", "memory.current", "inactive_file")


def test_this_machine_says_what_it_has() -> None:
    assert file_limit() > 0
    free = free_shared_bytes()
    assert free is None or free > 0
