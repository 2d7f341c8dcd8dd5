"""Workloads are values that follow from their draw alone: in any process, whatever its hash seed."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tailrace import OptionError
from tailrace.clock import SECOND_NS
from tailrace.connector import SplitStart
from tailrace.runtime.worker.opening import Context
from tailrace.sim import simulate
from tailrace.testing.processes import is_alive, wait_until
from tailrace_research.bench.workloads import (
    WORKLOADS,
    Draw,
    Sleeping,
    Stalls,
    Workload,
    followers,
    prepare_lookups,
    tweets,
)
from tailrace_research.bench.workloads.compressor import compressors
from tailrace_research.bench.workloads.spending import LATE_NS, Computing, LookingUp, Lookups, Means, Sleeper, compute
from tailrace_research.bench.workloads.timetable import Timetable
from tailrace_research.bench.workloads.walking import InMemory, Reaching, prepare_walks
from tailrace_research.bench.workloads.working import Arrival, executions, latencies_ns
from tailrace_research.bench.workloads.workload import Setup

SMALL = Draw(seed=3, tuples=300)
COSTING = [name for name in WORKLOADS if name not in ("sol", "throughput-test")]

PRINT_ALL = """
from tailrace_research.bench.workloads import WORKLOADS, Draw
from tailrace.policy.hashing import stable_hash
for name, make in WORKLOADS.items():
    drawn = make(Draw(seed=3, tuples=300, poisson=True))
    print(name, stable_hash((drawn.bodies, drawn.keys, drawn.works_ns, drawn.due_ns)))
"""


def made(name: str, draw: Draw = SMALL) -> Workload:
    return WORKLOADS[name](draw)


# --- drawn by the seed alone


def test_all_workloads_are_the_same_in_processes_with_other_hash_seeds() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PRINT_ALL],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == len(WORKLOADS)


@pytest.mark.parametrize("name", WORKLOADS)
def test_another_seed_draws_another_stream_and_another_load_the_same(name: str) -> None:
    workload = made(name)
    assert workload == made(name)
    relaxed = made(name, replace(SMALL, load=0.5))
    assert (relaxed.bodies, relaxed.works_ns) == (workload.bodies, workload.works_ns)
    assert relaxed.due_ns[-1] / workload.due_ns[-1] == pytest.approx(0.95 / 0.5, rel=1e-3)
    if len(set(workload.bodies)) > 1 and name != "exclamation":
        assert made(name, replace(SMALL, seed=4)).bodies != workload.bodies
    assert made(name, replace(SMALL, poisson=True, seed=4)).due_ns != made(name, replace(SMALL, poisson=True)).due_ns


@pytest.mark.parametrize("name", COSTING)
def test_tasks_are_busy_for_the_wanted_share_of_the_time(name: str) -> None:
    slow = replace(SMALL, slowness=(1.0, 1.0, 4.0, 2.0, 1.0), load=0.7)
    for draw, capacity in ((SMALL, 5.0), (slow, 3.75), (replace(SMALL, stalls=True), 5 / 1.49)):
        workload = made(name, draw)
        seconds = workload.due_ns[-1] * draw.tuples / (draw.tuples - 1)
        assert sum(workload.works_ns) / seconds == pytest.approx(draw.load * capacity, rel=1e-3)


@pytest.mark.parametrize("name", WORKLOADS)
def test_keys_are_what_groupings_read_off_tuples_and_every_topology_is_valid(name: str) -> None:
    workload = made(name)
    items = [(index, 0, body) for index, body in enumerate(workload.bodies)]
    assert tuple(map(workload.key, items)) == workload.keys
    assert all(a <= b for a, b in pairwise(workload.due_ns))
    workload.topology(Setup("/nowhere")).validate()


@pytest.mark.parametrize("name", COSTING)
def test_the_simulator_gets_the_same_stream(name: str) -> None:
    workload = made(name, replace(SMALL, slowness=(1.0, 1.0, 1.0, 1.0, 4.0), load=0.2))
    report = simulate(workload.model(), "full_knowledge")
    assert tuple(report.due_ns) == workload.due_ns
    fast = sum(report.busy_ns[:4]) + report.busy_ns[4] / 4
    assert fast == pytest.approx(sum(workload.works_ns), rel=1e-6)


def test_several_sources_deal_the_stream_out_as_the_simulator_does() -> None:
    workload = made("exclamation", replace(SMALL, sources=3))
    source = workload.topology(Setup("/nowhere")).operator("source")
    assert (source.tasks, workload.model().senders) == (3, 3)
    far_ns = 2 * workload.due_ns[-1]
    for split, name in enumerate(source.body.splits(3)):
        reader = source.body.open(SplitStart(name, elapsed_ns=far_ns))
        roots = [record.value[0] for record in reader.poll(len(workload.bodies), far_ns)]
        assert roots == [root for root in range(300) if root % 3 == split]


def test_tuples_that_cost_nothing_have_no_model() -> None:
    with pytest.raises(OptionError, match="tuples that cost nothing have no queue to simulate: workload=sol"):
        made("sol").model()


def test_speeds_that_change_have_no_model() -> None:
    with pytest.raises(OptionError, match=r"speeds that change midway have no model: workload=micro later=\(2.0,"):
        made("micro", replace(SMALL, later=(2.0,) * 5)).model()


def test_stalls_are_as_rare_and_as_long_as_drawn() -> None:
    rare = replace(SMALL, stalls=True, stall_share=0.001, stall_factor=20.0)
    assert rare.stall == Stalls(SMALL.seed, 0.001, 20.0)
    assert rare.capacity == pytest.approx(5 / 1.019)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tuples": 0}, "a workload needs more than nothing: tuples=0"),
        ({"load": -1}, "a workload needs more than nothing: load=-1"),
        ({"slowness": (1.0, 4.0)}, r"a slowness above zero for each task, or none: slowness=\(1.0, 4.0\) tasks=5"),
        ({"later": (0.0,) * 5}, r"a slowness above zero for each task, or none: later=\(0.0, .* tasks=5"),
    ],
)
def test_a_draw_of_nothing_is_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Draw(**wrong)  # type: ignore[arg-type]


# --- the papers' shapes


def test_content_is_the_stream_of_the_study() -> None:
    workload = made("content", Draw(seed=5, tuples=5_000))
    units = sorted({work // 250_000 for work in workload.works_ns})
    assert units == list(range(1, 65))
    costs: dict[int, set[int]] = {}
    for key, work_ns in zip(workload.keys, workload.works_ns, strict=True):
        costs.setdefault(key, set()).add(work_ns)
    assert all(len(found) == 1 for found in costs.values())


@pytest.mark.parametrize("seed", [1, 3])
def test_the_follower_graph_has_the_papers_size(seed: int) -> None:
    graph = followers.follower_graph(seed)
    degrees = [len(user) for user in graph]
    assert (len(graph), sum(degrees), max(degrees)) == (9_960, 183_005, 734)
    assert all(len(set(user)) == len(user) and max(user, default=0) < 9_960 for user in graph)


def test_every_walk_finds_what_three_hops_reach(tmp_path: Path) -> None:
    graph, reached = followers.follower_graph(1), followers.reach(1)
    lookups = LookingUp("", 1)
    walks = [prepare_walks(means, 1, str(tmp_path)).open() for means in (Sleeping(), Computing(), lookups, lookups)]
    most = max(range(followers.USERS), key=lambda user: len(graph[user]))
    nobody = next(user for user in range(followers.USERS) if not graph[user])
    for user in (0, 17, 9_959, most, nobody):
        found = {user}
        for _ in range(3):
            found |= {follower for one in found for follower in graph[one]}
        assert [walk(user) for walk in (reached.__getitem__, *walks)] == [len(found) - 1] * 5


def reaching_task(means: Means, folder: Path, **options: Any) -> tuple[Reaching, Workload]:
    workload = tweets.reaching(replace(SMALL, tuples=60, **options))
    body = workload.topology(Setup(str(folder), means=means)).operator("work").body
    task = body()
    task.open(Context("work", 1, 5, 0, 1, "reach", "job"))
    return task, workload


@pytest.mark.parametrize("name", ["sleep", "cpu", "sqlite"])
def test_the_operator_walks_and_a_walk_is_part_of_what_it_costs(name: str, tmp_path: Path) -> None:
    means: Means = {"sleep": Sleeping(), "cpu": Computing(), "sqlite": LookingUp("", 1)}[name]
    unit_ns = 25_000 if name == "sleep" else tweets.walk_unit_ns(means, SMALL.seed, str(tmp_path))
    task, workload = reaching_task(means, tmp_path, unit_ns=unit_ns)
    reached = followers.reach(SMALL.seed)
    began_ns, spent_ns = time.monotonic_ns(), time.thread_time_ns()
    results = [task.process((index, 0, body))[2] for index, body in enumerate(workload.bodies)]
    took_ns, used_ns = time.monotonic_ns() - began_ns, time.thread_time_ns() - spent_ns
    task.close()
    works_ns = [execution.work_ns for execution in executions(tmp_path)]
    assert results == [reached[author] for author in workload.keys]
    if name == "sleep":
        assert all(work >= asked for work, asked in zip(works_ns, workload.works_ns, strict=True))
        assert used_ns < took_ns  # a walk is only a part of it
        assert took_ns >= sum(workload.works_ns)
    else:
        assert sum(works_ns) <= used_ns
        assert works_ns[results.index(max(results))] > works_ns[results.index(min(results))]


def test_a_slow_task_walks_slowly(tmp_path: Path) -> None:
    task, workload = reaching_task(Computing(), tmp_path, slowness=(1.0, 20.0, 1.0, 1.0, 1.0))
    spent_ns = time.thread_time_ns()
    for index, body in enumerate(workload.bodies):
        task.process((index, 0, body))
    used_ns = time.thread_time_ns() - spent_ns
    walk = InMemory(SMALL.seed).open()
    spent_ns = time.thread_time_ns()
    for author in workload.keys:
        walk(author)
    assert used_ns > 5 * (time.thread_time_ns() - spent_ns)


def test_tweets_cost_what_the_paper_says() -> None:
    draw = Draw(tuples=4_000, unit_ns=1_000_000)
    mentions = [work / 1e6 for work in tweets.mention(draw).works_ns]
    assert min(mentions) >= 1.8 - 1e-5 and max(mentions) <= 36
    assert 6 < sum(mentions) / len(mentions) < 8
    reaches = [work / 1e6 for work in tweets.reaching(draw).works_ns]
    assert min(reaches) >= 0.01 and 60 < max(reaches) <= 70
    assert 15 < sum(reaches) / len(reaches) < 25


# --- when records are due


def test_a_timetable_gives_records_when_they_are_due_over_all_splits() -> None:
    source = Timetable("abcde", (0, 10, 20, 30, 40))
    first, second = (source.open(SplitStart(name)) for name in source.splits(2))
    assert [tuple(record) for record in first.poll(9, 1_000)] == [(0, 1_000, (0, 1_000, "a"))]
    assert first.ready_ns == 1_020
    assert [record.value[2] for record in first.poll(1, 1_045)] == ["c"]
    assert [record.value for record in first.poll(9, 1_045)] == [(4, 1_040, "e")]
    assert first.done and not second.done
    assert second.poll(9, 1_000) == []
    assert [record.value for record in second.poll(9, 2_000)] == [(1, 1_010, "b"), (3, 1_030, "d")]


def test_a_restart_keeps_the_times() -> None:
    source = Timetable("abcde", (0, 10, 20, 30, 40))
    reader = source.open(SplitStart("0/1", offset=2, elapsed_ns=25))
    assert [tuple(record) for record in reader.poll(9, 5_025)] == [(2, 5_020, (2, 5_020, "c"))]


# --- how work is spent


class LateTimer:
    """A clock and a sleep that ends late by so much."""

    def __init__(self, late_ns: int) -> None:
        self.now_ns = 0
        self.late_ns = late_ns

    def clock(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND_NS) + self.late_ns


def test_what_a_timer_is_late_by_is_made_up_for() -> None:
    timer = LateTimer(90_000)
    sleeper = Sleeper(timer.sleep, timer.clock)
    works = [250_000, 50_000, 30_000, 16_000_000] * 50
    for work_ns in works:
        sleeper.spend(work_ns)
    assert 0 <= timer.now_ns - sum(works) <= 4 * 90_000


def test_no_tuple_is_cut_by_more_than_a_quarter_and_a_suspended_machine_is_not_made_up_for() -> None:
    timer = LateTimer(20_000_000)
    sleeper = Sleeper(timer.sleep, timer.clock)
    for _ in range(10):
        sleeper.spend(2_000_000)
    assert timer.now_ns == 10 * 22_000_000 - 9 * 500_000
    timer.late_ns = 0
    for _ in range(1_000):
        sleeper.spend(2_000_000)
    assert timer.now_ns == 1_010 * 2_000_000 + 10 * 20_000_000 - 9 * 500_000 - LATE_NS


def test_a_sleeper_sleeps() -> None:
    spend = Sleeping().open()
    began_ns = time.monotonic_ns()
    for _ in range(20):
        spend(1_000_000)
    assert time.monotonic_ns() - began_ns >= 20_000_000


def test_computing_uses_processor_time() -> None:
    before_ns = time.thread_time_ns()
    compute(5_000_000)
    assert 5_000_000 <= time.thread_time_ns() - before_ns < 50_000_000


def test_lookups_are_as_many_as_fit(tmp_path: Path) -> None:
    means = prepare_lookups(tmp_path)
    assert means.lookup_ns > 0
    spend = means.open()
    lookups = spend.__self__  # type: ignore[attr-defined]
    assert isinstance(lookups, Lookups)
    for _ in range(10):
        spend(5 * means.lookup_ns // 2)
    assert lookups.done == 25 - (5 * means.lookup_ns // 2 * 2 != 5 * means.lookup_ns)


def test_stalls_are_rare_and_drawn_anew_for_each_execution() -> None:
    stalls = Stalls(seed=1)
    drawn = [stalls.factor_of("work", task, index, 1) for task in range(5) for index in range(4_000)]
    assert 150 < drawn.count(50.0) < 250 and drawn.count(1.0) == len(drawn) - drawn.count(50.0)
    stalled = [index for index in range(4_000) if stalls.factor_of("work", 0, index, 1) == 50]
    again = [index for index in stalled if stalls.factor_of("work", 0, index, 2) == 50]
    assert len(again) < len(stalled) / 4
    assert stalls.mean_factor == pytest.approx(1.49)
    with pytest.raises(OptionError, match=r"not stalls: share=20 factor=50\.0: is the share a fraction"):
        Stalls(1, share=20)


def test_compressors_end_with_their_block() -> None:
    with compressors(2) as pids:
        assert len(pids) == 2 and all(map(is_alive, pids))
    wait_until(lambda: not any(map(is_alive, pids)), 5, "the compressors to end")


# --- what became of it


def test_a_root_is_done_when_its_last_part_is_and_of_copies_the_first_counts() -> None:
    arrived = [
        Arrival("end", 0, 7, 0, 100, 150),
        Arrival("end", 1, 7, 1, 100, 190),
        Arrival("end", 0, 7, 1, 100, 170),
        Arrival("other", 0, 8, 0, 0, 30),
        Arrival("end", 0, 8, 0, 0, 20),
    ]
    assert latencies_ns(arrived) == {7: 70, 8: 30}
