"""Topologies as text, compared letter by letter."""

from __future__ import annotations

from kit.connectors import AnySink, AnySource
from tailrace.policy import broadcast, fields, local
from tailrace.topology import Operator, Role, Topology, union
from tailrace.topology.drawing import draw


def test_an_empty_topology() -> None:
    assert str(Topology("empty")) == "topology empty"


def test_a_chain() -> None:
    topology = Topology("wordcount")
    lines = topology.source("lines", AnySource(), tasks=2)
    words = lines.flat_map("split", str.split, tasks=4)
    counts = words.map("count", len, tasks=4, grouping=fields(str), stateful=True)
    counts.sink("out", AnySink())
    assert str(topology) == (
        "topology wordcount\n"
        "lines: source, 2 tasks\n"
        "└─ shuffle ─▶ split: flat_map, 4 tasks\n"
        "   └─ fields ─▶ count: map, 4 tasks, stateful\n"
        "      └─ shuffle ─▶ out: sink, 1 task"
    )


def test_a_fork() -> None:
    topology = Topology("fork")
    lines = topology.source("lines", AnySource(), tasks=2)
    left = lines.filter("left", bool)
    left.sink("kept", AnySink())
    left.sink("copy", AnySink(), grouping=broadcast(), tasks=3)
    lines.map("right", str, grouping=local()).sink("rest", AnySink())
    assert str(topology) == (
        "topology fork\n"
        "lines: source, 2 tasks\n"
        "├─ shuffle ─▶ left: filter, 1 task\n"
        "│  ├─ shuffle ─▶ kept: sink, 1 task\n"
        "│  └─ broadcast ─▶ copy: sink, 3 tasks\n"
        "└─ local ─▶ right: map, 2 tasks\n"
        "   └─ shuffle ─▶ rest: sink, 1 task"
    )


def test_a_union_is_drawn_once_and_named_after() -> None:
    topology = Topology("union")
    a = topology.source("a", AnySource())
    b = topology.source("b", AnySource())
    union(a, b.map("trim", str.strip)).map("merge", str).sink("out", AnySink())
    assert str(topology) == (
        "topology union\n"
        "a: source, 1 task\n"
        "└─ shuffle ─▶ merge: map, 1 task\n"
        "   └─ shuffle ─▶ out: sink, 1 task\n"
        "b: source, 1 task\n"
        "└─ shuffle ─▶ trim: map, 1 task\n"
        "   └─ shuffle ─▶ merge (see above)"
    )


def test_a_diamond_with_dead_letters_and_every_option() -> None:
    topology = Topology("enrich")
    lines = topology.source("lines", AnySource())
    score = lines.map_batch("score", list, kind="cpu", idempotent=False, on_error="dead_letter")
    fetch = lines.map("fetch", str, kind="blocking", on_error="skip", tasks=8)
    union(score, fetch).sink("out", AnySink())
    score.dead_letters.sink("bad", AnySink())
    assert str(topology) == (
        "topology enrich\n"
        "lines: source, 1 task\n"
        "├─ shuffle ─▶ score: map_batch, 1 task per worker, cpu, not idempotent, on error dead_letter\n"
        "│  ├─ shuffle ─▶ out: sink, 1 task\n"
        "│  └─ dead letters, shuffle ─▶ bad: sink, 1 task\n"
        "└─ shuffle ─▶ fetch: map, 8 tasks, blocking, on error skip\n"
        "   └─ shuffle ─▶ out (see above)"
    )


def test_a_cycle_is_drawn_all_the_same() -> None:
    topology = Topology("cycle")
    topology.source("lines", AnySource()).map("a", str).map("b", str)
    topology.connect("b", "a")
    assert str(topology) == (
        "topology cycle\n"
        "lines: source, 1 task\n"
        "└─ shuffle ─▶ a: map, 1 task\n"
        "   └─ shuffle ─▶ b: map, 1 task\n"
        "      └─ shuffle ─▶ a (see above)"
    )


def test_operators_that_no_source_reaches_come_last() -> None:
    operators = [Operator("lost", Role.MAP, str, 1), Operator("lines", Role.SOURCE, AnySource(), 1)]
    assert draw("parts", operators, []) == "topology parts\nlines: source, 1 task\nlost: map, 1 task"


def test_a_chain_longer_than_the_recursion_limit() -> None:
    topology = Topology("long")
    stream = topology.source("lines", AnySource())
    for index in range(1200):
        stream = stream.map(f"step-{index}", str)
    assert str(topology).endswith("└─ shuffle ─▶ step-1199: map, 1 task")
