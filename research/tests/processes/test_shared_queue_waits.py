"""Waits in Du's setting, with a queue for each task and with one for a worker: live, simulated, and by theory."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tailrace as tr
from tailrace.sim import Queue, Scope, simulate
from tailrace.sim.load.erlang import mean_wait
from tailrace_research.bench.workloads import Draw, Outcome, Workload, run_workload
from tailrace_research.bench.workloads.content import exponential

WORKERS = 2
SHARED = tr.Tail(shared_queues="worker")


def _delay_ms(workload: Workload, tail: tr.Tail) -> float:
    outcome: Outcome = run_workload(workload, workers=WORKERS, tail=tail)
    spent = {execution.root: execution.ended_ns - execution.began_ns for execution in outcome.executions}
    delays = [latency_ns - spent[index] for index, latency_ns in enumerate(outcome.latencies_ns)]
    return sum(delays) / len(delays) / 1e6


@pytest.mark.soak
def test_waits_are_shorter_in_du_s_setting() -> None:
    """Four tasks a worker, exponential calls, 78% load. What neighbours on the machine add is the same for both."""
    workload = exponential(Draw(seed=1, tuples=800, load=0.78, unit_ns=1_000_000, tasks=8, poisson=True))
    own_ms, shared_ms = (_delay_ms(workload, tail) for tail in (tr.Tail(), SHARED))
    assert shared_ms < 0.75 * own_ms


def test_waits_are_shorter_in_du_s_setting_in_the_simulator_and_by_theory() -> None:
    workload = exponential(Draw(seed=1, tuples=800, load=0.78, unit_ns=1_000_000, tasks=8, poisson=True))
    own, shared = (_simulated_delay_ns(workload, scope) for scope in (Scope.OWN, Scope.WORKER))
    assert shared < own / 3
    assert mean_wait(4, 4 * 0.78, 1) < mean_wait(1, 0.78, 1) / 3


def _simulated_delay_ns(workload: Workload, scope: Scope) -> float:
    report = simulate(replace(workload.model(), workers=WORKERS, queue=Queue(scope)), "shuffle")
    return report.mean_ns - sum(workload.works_ns) / len(workload.works_ns)
