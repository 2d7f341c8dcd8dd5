"""The ends of a topology that is applied to a DataFrame: declared, refused where they cannot be, and filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kit.connectors import AnySink, AnySource
from tailrace.connector import SinkContext, SplitStart
from tailrace.core.plan.planner import make_plan
from tailrace.errors import OptionError, TopologyError
from tailrace.policy import least_work
from tailrace.topology import Role, Topology, filled, set_applier, union


@pytest.fixture
def topology() -> Topology:
    return Topology("scores")


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the applier was called with; nobody else's applier is disturbed."""
    calls: list[Any] = []

    def apply(*args: Any, **kwargs: Any) -> str:
        calls.append((args, kwargs))
        return "frame"

    monkeypatch.setattr("tailrace.topology.launching._applier", None)
    set_applier(apply)
    yield calls


def text_of(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(TopologyError) as caught:
        call(*args, **options)
    return str(caught.value)


def test_input_and_output_are_a_source_and_a_sink(topology: Topology) -> None:
    topology.input("users", tasks=2, kind="blocking").map("score", str, tasks=8).output("scored", tasks=3)
    users, _, scored = topology.operators
    assert (users.role, users.tasks, users.kind.value) == (Role.SOURCE, 2, "blocking")
    assert (scored.role, scored.tasks, scored.body.committing) == (Role.SINK, 3, True)
    assert make_plan(topology, workers=4).splits == ()


def test_they_have_names_of_their_own(topology: Topology) -> None:
    topology.input().output()
    assert [operator.name for operator in topology.operators] == ["input", "output"]


def test_apply_hands_everything_to_the_applier(topology: Topology, applied: list[Any]) -> None:
    topology.input("users").output("scored")
    assert topology.apply("df", "id long", workers=3, folder="/mnt", splits=8, watch=True) == "frame"  # type: ignore
    options = {"workers": 3, "folder": "/mnt", "splits": 8, "watch": True}
    assert applied == [((topology, "df", "id long"), options)]
    topology.stream("users").map("late", str)  # it may grow, and be applied again


def test_without_an_applier(topology: Topology, applied: list[Any]) -> None:
    set_applier(None)
    topology.input("users").output("scored")
    assert text_of(topology.apply, "df", "id long") == (
        "nothing can apply a topology yet: topology=scores applier=None: did you forget import tailrace?"
    )


def test_a_topology_with_placeholders_does_not_run(topology: Topology) -> None:
    topology.input("users").output("scored")
    expected = (
        "a topology with an input is applied to a DataFrame, and does not run by itself: topology=scores "
        "input=users: did you mean topology.apply(df, schema)?"
    )
    assert text_of(topology.validate) == text_of(topology.run) == text_of(topology.run, workers=2) == expected
    other = Topology("other")
    other.source("lines", AnySource()).output("scored")
    assert text_of(other.run) == (
        "a topology with an output is applied to a DataFrame, and does not run by itself: topology=other "
        "output=scored: did you mean topology.apply(df, schema)?"
    )


def test_a_topology_without_placeholders_is_not_applied(topology: Topology, applied: list[Any]) -> None:
    lines = topology.source("lines", AnySource())
    lines.sink("out", AnySink())
    assert text_of(topology.apply, "df", "id long") == (
        "no input to apply to a DataFrame: topology=scores: "
        "did you forget topology.input(…), or did you mean topology.run(spark)?"
    )
    topology.input("users").sink("other", AnySink())
    assert text_of(topology.apply, "df", "id long") == (
        "no output to make a DataFrame of: topology=scores: did you forget .output(…)?"
    )
    assert applied == []


def test_the_graph_is_checked_as_for_a_run(topology: Topology, applied: list[Any]) -> None:
    users = topology.input("users")
    users.output("scored")
    users.map("score", str)
    assert text_of(topology.apply, "df", "id long") == (
        "an operator does nothing with its output: operator=score: did you forget .sink(…)?"
    )
    assert applied == []


def test_a_second_one_is_refused(topology: Topology) -> None:
    users = topology.input("users")
    assert text_of(topology.input, "more") == (
        "a topology cannot have two inputs: topology=scores users, more: "
        "is the other one a topology.source(…), or could the DataFrames be united before?"
    )
    users.output("scored")
    assert text_of(users.output, "again") == (
        "a topology cannot have two outputs: topology=scores scored, again: "
        "did you mean tr.union(a, b).output(…), or another sink?"
    )
    assert len(topology.operators) == 2


def test_wrong_parameters_are_refused(topology: Topology) -> None:
    with pytest.raises(OptionError, match="unknown parameter: operator=users taks=…: did you mean tasks=…"):
        topology.input("users", taks=2)  # type: ignore[call-arg]
    users = topology.input("users")
    with pytest.raises(OptionError, match="unknown parameter: operator=scored conccurrency=…"):
        users.output("scored", conccurrency=2)  # type: ignore[call-arg]
    assert "so load cannot decide: operator=scored grouping=least_work" in text_of(
        users.output, "scored", grouping=least_work(str)
    )


def test_filling_makes_a_copy(topology: Topology) -> None:
    users = topology.input("users", tasks=2)
    scored = users.map("score", str, on_error="dead_letter")
    union(scored, users).output("scored")
    scored.dead_letters.sink("failed", AnySink())
    source, sink = AnySource(), AnySink()
    copy = filled(topology, source, sink)
    copy.validate()
    assert copy.operator("users").body is source
    assert copy.operator("users").tasks == 2
    assert copy.operator("scored").body is sink
    assert copy.operator("score") is topology.operator("score")
    assert copy.edges == topology.edges
    copy.freeze()
    topology.stream("users").map("late", str)
    assert "late" not in [operator.name for operator in copy.operators]


def test_placeholders_cannot_be_opened(topology: Topology) -> None:
    topology.input("users").output("scored")
    users, scored = (operator.body for operator in topology.operators)
    assert text_of(users.open, SplitStart("all")) == (
        "no DataFrame stands behind this input: split=all: did you mean topology.apply(df, schema)?"
    )
    context = SinkContext("scored", 0, 1, 1, "job", lambda operator, message: None)
    assert text_of(scored.open, context) == (
        "no DataFrame stands behind this output: operator=scored: did you mean topology.apply(df, schema)?"
    )
