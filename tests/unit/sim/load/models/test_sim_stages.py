"""Stages and stalls in models and in TOML, and what a forest refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tailrace.cli import main
from tailrace.clock import MILLISECOND_NS as MS
from tailrace.errors import OptionError
from tailrace.sim import (
    ByContent,
    Constant,
    Exponential,
    Forest,
    Model,
    Node,
    Paced,
    Poisson,
    Queue,
    Report,
    Scope,
    Stage,
    StageReport,
    Stalls,
    Uplink,
    grow,
    named_hedge,
    named_policy,
    parse_model,
    read_model,
    render_comparison,
    simulate,
)

PAGE_LOAD = Path(__file__).parents[5] / "examples" / "models" / "page_load.toml"
HERE = Path()
LEAST: dict[str, Any] = {"arrivals": {"kind": "paced", "load": 0.5}, "service": {"kind": "constant", "mean_ms": 1}}


def test_the_example_of_several_stages() -> None:
    model = read_model(PAGE_LOAD)
    assert model == Model(
        Poisson(load=0.4),
        Exponential(MS),
        tuples=20_000,
        senders=5,
        workers=5,
        nodes=(Node(), Node()),
        link=Uplink(200_000),
        stalls=Stalls(0.005, 50),
        stages=(
            Stage("transform"),
            Stage("filter", Constant(MS // 10), fan_out=0.9),
            Stage("join", ByContent(costs=4, low_ns=MS // 2, high_ns=2 * MS), grouping="fields"),
            Stage("filter2", Constant(MS // 10), inputs=("join",)),
            Stage("aggregate", queue=Queue(Scope.NODE)),
            Stage("sink", Constant(MS // 20), grouping="local"),
        ),
    )
    assert [stage.inputs for stage in model.operators][:2] == [("source",), ("transform",)]
    assert {stage.tasks for stage in model.operators} == {5}


def test_a_stage_s_tables_and_lists() -> None:
    stage = {"name": "a", "fan_out": [1, 3], "workers": [0, 2], "tasks": 4}
    stage |= {"service": {"kind": "constant", "mean_us": 5}, "stalls": {"share": 0.1, "factor": 2}}
    model = parse_model({"arrivals": LEAST["arrivals"], "stages": [stage]}, HERE)
    assert model.stages == (Stage("a", Constant(5_000), 4, fan_out=(1, 3), workers=(0, 2), stalls=Stalls(0.1, 2)),)
    assert [model.worker_of(model.operators[0], task) for task in range(4)] == [0, 2, 0, 2]


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ([{"name": "a"}, {"name": "a"}], "two stages of one name: stage=a"),
        ([{"name": "source"}], "a stage needs a name of its own: name='source'"),
        ([{"tasks": 3}], "something is missing or of the wrong type: part=stage"),
        ([{"name": "a", "taks": 3}], "unknown setting: part=stage name=taks: did you mean tasks\\?$"),
        ([{"name": "a", "tasks": -1}], "a stage needs at least one task: stage=a tasks=-1"),
        (
            [{"name": "a", "inputs": ["b"]}, {"name": "b"}],
            "a stage receives from stages before it: stage=a inputs=b: did you mean one of source?",
        ),
        ([{"name": "a", "inputs": ["source", "source"]}], "an input twice: stage=a inputs=source, source"),
        ({"name": "a"}, r"a stage is a table: stage='name': did you mean \[\[stages\]\]\?"),
        ([{"name": "a", "inputs": "source"}], r"inputs are a list: stage=a inputs=source: did you mean \['source'\]"),
        ([{"name": "a", "tasks": "many"}], "something is missing or of the wrong type: part=model"),
        ([{"name": "a", "fan_out": "some"}], "something is missing or of the wrong type: part=stage"),
        ([{"name": "a", "fan_out": -1}], "a tuple becomes none or more: stage=a fan_out=-1"),
        ([{"name": "a", "fan_out": [3, 1]}], r"a tuple becomes none or more: stage=a fan_out=\(3, 1\)"),
        ([{"name": "a", "workers": [7]}], r"no such worker: stage=a workers=\(7,\) of=5"),
        ([{"name": "a", "grouping": "suffle"}], "unknown policy: policy=suffle: did you mean shuffle\\?$"),
        ([{"name": "a", "stalls": {"share": 2, "factor": 1}}], "stalls hit a share of executions and prolong them"),
        ([{"name": "a", "service": {"kind": "slow"}}], r"a model needs \[service\] with a kind: kind='slow'"),
    ],
)
def test_what_is_wrong_with_stages_is_said(stages: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_model({**LEAST, "stages": stages}, HERE)


def test_a_stage_without_a_service() -> None:
    with pytest.raises(OptionError, match="a stage has no service: stage=b: how long do its tuples take"):
        simulate(Model(Paced(load=0.5), stages=(Stage("a", Constant(1)), Stage("b"))))


def test_a_forest_by_hand() -> None:
    """A fork with a filter on one way: the two ways draw apart from each other."""
    stages = (Stage("a", fan_out=0.5), Stage("b"), Stage("c", inputs=("a",)), Stage("d", inputs=("b", "c")))
    model = Model(Paced(load=0.5), Constant(7), tuples=1_000, stages=stages)
    forest = grow(model, 5)
    forest.validate(model)
    by_stage = [forest.stages.count(stage) for stage in range(4)]
    assert by_stage[0] == 1_000
    assert by_stage[1] == pytest.approx(500, abs=50)
    assert by_stage[2] == pytest.approx(500, abs=50)
    assert by_stage[3] == by_stage[1] + by_stage[2]
    assert {len(forest.children[root]) for root in range(1_000)} == {0, 1, 2}
    assert grow(model, 5) == forest != grow(model, 6)


GOOD = Forest([0, 5], [(0,), (1,)], [0, 0, 1], [0] * 3, [1] * 3, [[1] * 3] * 2, [(2,), (), ()])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"values": [0]}, r"a forest's columns differ in length: tuples=3 columns=\[1, 3\]"),
        ({"due_ns": [5, 0]}, "roots are not due at ascending times from zero on: were they sorted"),
        ({"again_ns": [[1, 1, 1], [1, 0, 1]]}, "every tuple takes some time: least=0"),
        ({"again_ns": [[1, 1, 1]]}, "a root may be emitted again: times=2 columns=1"),
        ({"senders": [0, 4]}, "a sender for each root, or none: roots=2 senders=1"),
        ({"roots": [(0,), (0,)]}, "a tuple that is not there, or has two parents: tuple=0"),
        ({"children": [(9,), (), ()]}, "a tuple that is not there, or has two parents: tuple=9"),
        ({"stages": [0, 0, 0]}, "no such way in the model: tuple=2 from=0 to=0"),
        ({"children": [(), (), ()]}, "a tuple without a parent, or a root without tuples: is the forest complete"),
    ],
)
def test_what_is_wrong_with_a_forest_is_said(change: dict[str, Any], text: str) -> None:
    model = Model(Paced(load=0.5), Constant(7), stages=(Stage("a"), Stage("b")))
    GOOD.validate(model)
    with pytest.raises(OptionError, match=text):
        simulate(model, forest=replace(GOOD, **change))


def test_names() -> None:
    assert named_policy("local").name == "local"
    with pytest.raises(OptionError, match="unknown hedging rule: hedge=soon"):
        named_hedge("soon")


# -- what is shown


def test_stages_and_hedges_are_shown() -> None:
    stages = (StageReport("a", (3, 1), (20, 30), [10_000_000]), StageReport("b", (4,), (40,), []))
    plain = Report("shuffle", 0, [0, 10], [20, 40], [20, 30], (3, 1, 4), (20, 30, 40), 7, stages)
    hedged = replace(plain, hedge="soon", hedges=3, hedges_won=1, cancelled=2, extra_work=0.125)
    lines = render_comparison([plain, hedged]).splitlines()
    assert lines[0].split()[-4:] == ["hedges", "won", "extra", "work"]
    assert lines[2].startswith("shuffle + soon ") and lines[2].split()[-3:] == ["3", "1", "12.5%"]
    assert lines[4].split() == ["policy", "stage", "executed", "busy", "busiest", "mean", "wait", "p99", "wait"]
    assert lines[5].split() == ["shuffle", "a", "4", "62%", "75%", "2.5", "10.0"]
    assert lines[6].split() == ["b", "4", "100%", "100%", "0.0", "0.0"]
    shown = hedged.to_json()
    assert shown["hedges"] == {"issued": 3, "won": 1, "wasted": 2}
    assert (shown["cancelled"], shown["extraWork"], shown["replay"]) == (2, 0.125, "soon")
    assert shown["stages"][0]["waitMs"] == {"mean": 2.5, "p99": 10.0}
    assert "hedges" not in plain.to_json()


def test_the_command_shows_stages(tmp_path: Path) -> None:
    model, out = tmp_path / "model.toml", tmp_path / "out.json"
    model.write_text(PAGE_LOAD.read_text().replace("20_000", "300"))
    result = CliRunner().invoke(main, ["sim", str(model), "--policy", "shuffle", "--json", str(out)])
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()[4:9]] == [
        "shuffle",
        "filter",
        "join",
        "filter2",
        "aggregate",
    ]
    (report,) = json.loads(out.read_text())
    assert [stage["name"] for stage in report["stages"]][-1] == "sink"
    assert sum(report["stages"][0]["executed"]) == 300
