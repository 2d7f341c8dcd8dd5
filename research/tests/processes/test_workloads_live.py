"""Workloads on real workers execute what their lists of costs say, and nothing is missing at the end."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tailrace_research.bench.workloads import (
    Draw,
    LookingUp,
    Means,
    Sleeping,
    Stalls,
    content,
    processing,
    reaching,
    run_workload,
    word_count,
)
from tailrace_research.bench.workloads.spending import CUT

TUPLES = 200


def test_tasks_execute_the_listed_costs_at_their_own_speeds() -> None:
    speeds = ((1.0, 3.0, 1.0, 1.0, 1.0), (1.0, 1.0, 2.0, 1.0, 1.0))
    draw = Draw(2, TUPLES, load=0.5, unit_ns=50_000, slowness=speeds[0], later=speeds[1], stalls=True)
    workload = content(draw)
    outcome = run_workload(workload)
    executed = {execution.root: execution for execution in outcome.executions}
    assert len(outcome.executions) == len(executed) == TUPLES
    assert Counter(execution.task for execution in outcome.executions) == dict.fromkeys(range(5), TUPLES // 5)
    stalls = Stalls(draw.seed)
    for root, execution in executed.items():
        factor = speeds[root >= TUPLES // 2][execution.task] * stalls.factor_of("work", execution.task, root, 1)
        assert execution.work_ns == int(workload.works_ns[root] * factor)
        spent_ns = execution.ended_ns - execution.began_ns
        assert spent_ns >= execution.work_ns * (CUT - 1) // CUT
        assert outcome.latencies_ns[root] >= spent_ns
    for task in range(5):
        own = [execution for execution in outcome.executions if execution.task == task]
        assert sum(one.ended_ns - one.began_ns for one in own) >= sum(one.work_ns for one in own)
        assert all(a.ended_ns <= b.began_ns for a, b in pairwise(own))


def test_a_sentence_is_done_when_all_of_its_words_are_counted() -> None:
    workload = word_count(Draw(seed=2, tuples=TUPLES, load=0.5, unit_ns=50_000))
    outcome = run_workload(workload)
    assert len(outcome.latencies_ns) == TUPLES
    assert sorted(execution.work_ns for execution in outcome.executions) == sorted(workload.works_ns)
    words = sum(len(sentence.split()) for sentence in workload.bodies)
    assert outcome.progress["operators"][-1]["received"] == words


@pytest.mark.parametrize("means", [Sleeping(), LookingUp("", 1)])
def test_tasks_walk_where_their_means_have_them_walk(means: Means) -> None:
    workload = reaching(Draw(seed=1, tuples=60, load=0.3, unit_ns=100_000, tasks=2))
    outcome = run_workload(workload, means=means)
    spent_ns = [execution.work_ns for execution in sorted(outcome.executions, key=lambda execution: execution.root)]
    assert len(spent_ns) == len(outcome.latencies_ns) == 60
    as_asked = sum(map(int.__eq__, workload.works_ns, spent_ns))
    assert as_asked > 30 if isinstance(means, Sleeping) else not as_asked  # a query takes what it takes


def test_both_branches_of_a_fork_cost() -> None:
    workload = processing(Draw(tuples=TUPLES, load=0.3, unit_ns=50_000))
    outcome = run_workload(workload)
    assert len(outcome.latencies_ns) == TUPLES
    per_operator = Counter(execution.operator for execution in outcome.executions)
    assert per_operator == dict.fromkeys(("transform", "filter", "join1", "join2", "normalise"), TUPLES)
    branches = [min(execution.ended_ns - execution.began_ns for execution in outcome.executions)] * 3
    assert min(outcome.latencies_ns) >= sum(branches)  # the longest way is three operators long
