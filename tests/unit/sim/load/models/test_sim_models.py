"""Models in TOML, what they refuse, and what is drawn from them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest
from click.testing import CliRunner

from tailrace.cli import main
from tailrace.errors import OptionError
from tailrace.policy import stable_hash
from tailrace.sim import (
    ByContent,
    Constant,
    Lognormal,
    Model,
    Node,
    Order,
    Paced,
    Poisson,
    Queue,
    Recorded,
    Scope,
    Slowdown,
    Trace,
    Uplink,
    parse_model,
    read_model,
    simulate,
)
from tailrace.sim.load.queues import Fifo, ShortestFirst
from tailrace.sim.load.report import Report

EXAMPLE = Path(__file__).parents[5] / "examples" / "models" / "content.toml"
HERE = Path()
LEAST: dict[str, Any] = {
    "arrivals": {"kind": "paced", "rate_per_s": 10},
    "service": {"kind": "constant", "mean_ms": 1},
}


def test_the_example() -> None:
    assert read_model(EXAMPLE) == Model(
        Poisson(load=0.95),
        ByContent(4096, 1.0, 64, 1_000_000, 64_000_000),
        tuples=50_000,
        senders=2,
        nodes=(Node(), Node(0.8, (Slowdown(60 * 10**9, 90 * 10**9, 2.0),))),
        link=Uplink(200_000, 125_000_000),
        queue=Queue(Scope.OWN, Order.FIFO),
    )


def test_recordings_lie_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "at.csv").write_text("0\n0.5\n2\n")
    (tmp_path / "costs.csv").write_text("ann,1.5\nbob,3\nann,1\n")
    (tmp_path / "model.toml").write_text(
        'tuples = 3\n[arrivals]\nkind = "recorded"\nfile = "at.csv"\n[service]\nkind = "trace"\nfile = "costs.csv"\n'
    )
    model = read_model(tmp_path / "model.toml")
    assert model.arrivals == Recorded((0, 500_000_000, 2_000_000_000))
    ann, bob = stable_hash("ann"), stable_hash("bob")
    assert model.service == Trace((ann, bob, ann), (1_500_000, 3_000_000, 1_000_000))
    assert simulate(model).latencies_ns == [1_500_000, 3_000_000, 1_000_000]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"arrivals": {"kind": "pased"}}, r"needs \[arrivals\] with a kind: kind='pased': did you mean paced\?$"),
        ({"service": None}, r"a model needs \[service\] with a kind: kind=None"),
        ({"taks": 5}, "unknown setting: part=model name=taks: did you mean tasks\\?$"),
        ({"tasks": 0}, "a model needs at least one: tasks=0"),
        ({"service": {"kind": "constant"}}, "something is missing or of the wrong type: part=service"),
        ({"queue": {"scope": "task"}}, "unknown scope: scope='task': did you mean one of 'own', 'worker', 'node'"),
        ({"link": {"latency_ms": -1}}, "not an uplink: latency_ns=-1000000"),
        ({"arrivals": {"kind": "paced"}}, "arrivals need a rate or a load above zero, not both"),
        ({"arrivals": {"kind": "recorded"}}, "a recording is in a file: part=arrivals"),
        ({"arrivals": {"kind": "recorded", "file": "no.csv"}}, "no recording: part=arrivals file=no.csv"),
        ({"senders": 2, "sender_nodes": [0]}, "a node for each sender, or none: senders=2 given=1"),
        ({"sender_nodes": [3]}, r"no such node: sender_nodes=\(3,\) nodes=1"),
        ({"nodes": [{"speed": 0}]}, "a node that gets nowhere: speed=0"),
        ({"nodes": [{"slowdowns": [{"begin_s": 2, "end_s": 1, "factor": 2}]}]}, "not a slowdown: begin_ns=2000000000"),
    ],
)
def test_what_is_wrong_with_a_model_is_said(change: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_model({**LEAST, **change}, HERE)


def test_content_by_zipf_s_law_with_costs_spread_evenly() -> None:
    service = ByContent(items=64, alpha=1.0, costs=64, low_ns=1_000, high_ns=64_000)
    values, works = service.draw(50_000, Random(3))
    counts = Counter(values)
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.1)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.2)
    cost_of = dict(zip(values, works, strict=True))
    assert sorted(cost_of.values()) == [1_000 * (1 + step) for step in range(64)]
    assert all(cost_of[value] == work for value, work in zip(values, works, strict=True))
    assert service.draw(100, Random(4)) != service.draw(100, Random(5))


def test_other_services_and_arrivals() -> None:
    assert Constant(5).draw(2, Random(0)) == ([0, 0], [5, 5])
    assert fmean(Lognormal(1_000_000, 1.0).draw(50_000, Random(1))[1]) == pytest.approx(1e6, rel=0.05)
    jittered = ByContent(items=1, costs=1, low_ns=1_000_000, high_ns=1_000_000, jitter=0.1).draw(5_000, Random(1))[1]
    assert fmean(jittered) == pytest.approx(1e6, rel=0.01) and len(set(jittered)) > 1_000
    assert Paced(load=0.5).times_ns(3, 1_000.0, Random(0)) == [0, 2_000_000, 4_000_000]
    assert Poisson(rate_per_s=100).times_ns(20_000, 0.0, Random(0))[-1] == pytest.approx(200e9, rel=0.03)
    with pytest.raises(OptionError, match="more tuples than recorded arrivals: tuples=3 recorded=2"):
        Recorded((0, 1)).times_ns(3, 0.0, Random(0))
    with pytest.raises(OptionError, match="recorded arrivals are not ascending"):
        Recorded((1, 0))
    with pytest.raises(OptionError, match="a trace needs a duration above zero for every tuple: values=1 works=0"):
        Trace((1,), ())


def test_queues_give_back_what_they_were_given() -> None:
    fifo, shortest = Fifo(), ShortestFirst(aging=0.5)
    for _ in range(8):
        shortest.ran(1, 100)
        shortest.ran(2, 10)
    for index, (value, now_ns) in enumerate([(1, 0), (2, 1), (2, 300)]):
        for queue in (fifo, shortest):
            queue.put((index, 0, None), value, now_ns)
    assert [fifo.take()[0] for _ in range(3)] == [0, 1, 2]
    assert [shortest.take()[0] for _ in range(3)] == [1, 0, 2], "short first, but not before one that is much older"
    assert len(fifo) == len(shortest) == 0


def test_a_report_s_figures() -> None:
    report = Report("p", 0, [0, 10, 20, 30], [10, 40, 30, 35], [10, 10, 5, 30], (3, 1), (20, 30), 7)
    assert (report.mean_ns, report.max_ns, report.end_ns) == (13.75, 30, 40)
    assert [report.percentile_ns(q) for q in (0.25, 0.26, 0.5, 0.75, 0.76, 1.0)] == [5, 10, 10, 10, 30, 30]
    assert report.backlog(4) == [(0, 1), (10, 1), (20, 2), (30, 2), (40, 0)]
    assert report.histogram.count == 4


# -- the command


def test_the_command_compares_and_writes(tmp_path: Path) -> None:
    model = tmp_path / "model.toml"
    model.write_text(EXAMPLE.read_text().replace("50_000", "2_000"))
    out, plots = tmp_path / "reports.json", tmp_path / "plots"
    policies = ["--policy", "shuffle", "--policy", "pull"]
    result = CliRunner().invoke(main, ["sim", str(model), *policies, "--json", str(out), "--plots", str(plots)])
    assert result.exit_code == 0, result.output
    header, shuffled, pulled, _, written = result.output.splitlines()
    assert written == f"written to {out}"
    assert header.split() == ["policy", "mean", "p50", "p90", "p99", "p99.9", "max", "speed-up", "messages"]
    assert shuffled.startswith("shuffle") and pulled.startswith("pull")
    first, second = json.loads(out.read_text())
    assert f"{second['latencyMs']['p999']:,.1f}" == pulled.split()[5]
    assert sum(first["executed"]) == 2_000
    for name in ("latency.svg", "backlog.svg"):
        assert "pull" in (plots / name).read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--policy", "osgg"], "unknown policy: policy=osgg: did you mean osg?\n"),
        (["--json", "/no/such/file"], "no such folder: /no/such"),
        (["--replay", "soon"], "unknown hedging rule: hedge=soon: did you mean one of adaptive_timeout, du_timeout"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, ["sim", str(EXAMPLE), *arguments])
    assert result.exit_code != 0
    assert text in result.output
