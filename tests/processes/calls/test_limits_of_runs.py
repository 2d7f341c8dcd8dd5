"""The workers of a run keep one limit, as the service itself counts, and though one of them is killed."""

from __future__ import annotations

import pytest

import tailrace as tr
from kit.counting_server import await_use, counts_of, refuse, service
from kit.http_calls import Service
from kit.runs import await_recovery, kill, running
from tailrace.testing.processes import wait_until

ENDLESS = range(10_000_000)


def topology_of(port: int, limit: tr.Limit, concurrency: int) -> tr.Topology:
    topology = tr.Topology("limited")
    numbers = topology.source("numbers", tr.from_iterable(ENDLESS))
    calls = tr.Calls(limit=limit, concurrency=concurrency)
    numbers.map("score", Service(port).call, tasks=3, calls=calls).sink("out", tr.to_call(lambda _: None))
    return topology


@pytest.mark.parametrize(("per_s", "concurrency"), [(20, 8), (200, 16), (2000, 64)])
def test_a_run_keeps_and_uses_a_limit_though_a_worker_is_killed(per_s: int, concurrency: int) -> None:
    limit = tr.limit(f"run-{per_s}", per_s=per_s)
    with service() as port, running(topology_of(port, limit, concurrency), workers=3, max_pending=2000) as run:
        await_use(port, per_s)
        calls = len(counts_of(port).calls)
        kill(run, 1)
        await_recovery(run)
        wait_until(lambda: len(counts_of(port).calls) > calls + 3 * per_s, 60, "calls after the recovery")
        await_use(port, per_s)
        counts = counts_of(port)
    counts.assert_kept(per_s)


def test_a_run_leaves_a_service_alone_that_refuses_calls() -> None:
    limit = tr.limit("run-refused", per_s=200)
    with service() as port, running(topology_of(port, limit, 16), workers=3, max_pending=2000) as run:
        await_use(port, 200)
        refuse(port, seconds=0.5, retry_after=2.0)
        wait_until(lambda: counts_of(port).refused, 30, "a refusal")
        begun = counts_of(port).refused[0]
        wait_until(lambda: any(call > begun + 2.0 for call in counts_of(port).answered), 30, "calls that are answered")
        assert run.isActive
        counts = counts_of(port)
    counts.assert_kept(200)
    assert len(counts.refused) <= 200


def test_a_limit_that_is_in_use_cannot_be_declared_otherwise() -> None:
    with service() as port, running(topology_of(port, tr.limit("one-name", per_s=50), 4), workers=1):
        wait_until(lambda: counts_of(port).calls, 30, "a call")
        text = r"two limits of one name: limit=one-name first=\(per_s=50\) second=\(per_s=20\): did you mean two names"
        with pytest.raises(tr.OptionError, match=text):
            topology_of(port, tr.limit("one-name", per_s=20), 4).run(workers=1)
