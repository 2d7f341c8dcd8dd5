"""A million integers come out once each, whoever dies on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import durable, finish, homes, kill, read_parquet, restarts, row, running, same
from tailrace.testing.processes import wait_until

MILLION = 1_000_000
KILLS_AT = (0.2, 0.35, 0.5, 0.65, 0.8)  # of all roots durable


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_million_with_five_kills(tmp_path: Path) -> None:
    topology = tr.Topology("million")
    numbers = topology.source("numbers", tr.from_iterable(range(MILLION)), tasks=2)
    dealt = numbers.map("dealt", same, tasks=4, grouping=tr.shuffle())
    keyed = dealt.map("keyed", row, tasks=4, grouping=tr.fields(lambda number: number))
    keyed.sink("out", tr.to_parquet(tmp_path, schema="n long", roll_seconds=0.5), tasks=2)
    source, sink = homes(topology, 3, "numbers")[0], homes(topology, 3, "out")[-1]
    assert source != sink
    victims = [source, sink, 3 - source - sink, source, sink]
    with running(topology, workers=3) as run:
        for fraction, victim in zip(KILLS_AT, victims, strict=True):
            wait_until(lambda least=fraction * MILLION: durable(run) >= least, 120, f"{fraction:.0%} to be durable")
            assert run.isActive
            kill(run, victim)
        progress = finish(run, 150)
    assert progress["recoveries"] >= 5
    assert progress["reemitted"] > 0
    assert [restarts(progress)[worker] for worker in victims] == [2, 2, 1, 2, 2]
    assert sorted(read_parquet(tmp_path)) == list(range(MILLION))
