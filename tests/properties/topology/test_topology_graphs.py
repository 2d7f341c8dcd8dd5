"""Whatever the graph: its order respects its edges or names a real cycle, and its drawing shows every part once."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TopologyError
from tailrace.policy import shuffle
from tailrace.topology import Edge, Operator, Role
from tailrace.topology.drawing import draw
from tailrace.topology.validation import topological_order

NAMES = tuple("abcdefg")
OPERATORS = [Operator(name, Role.SOURCE if name == "a" else Role.MAP, str, 1) for name in NAMES]
any_edges = st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=14).map(
    lambda pairs: [Edge(upstream, downstream, shuffle()) for upstream, downstream in sorted(pairs)]
)


@given(any_edges, st.permutations(OPERATORS))
def test_an_order_respects_all_edges_or_there_is_the_cycle_it_names(
    edges: list[Edge], declared: list[Operator]
) -> None:
    pairs = {(edge.upstream, edge.downstream) for edge in edges}
    try:
        order = [operator.name for operator in topological_order(declared, edges)]
    except TopologyError as error:
        found = re.search("cycle=(.*): is one", str(error))
        assert found is not None
        ring = found[1].split(" -> ")
        assert ring[0] == ring[-1]
        assert len(set(ring)) == len(ring) - 1
        assert set(pairwise(ring)) <= pairs
    else:
        assert sorted(order) == sorted(NAMES)
        assert all(order.index(upstream) < order.index(downstream) for upstream, downstream in pairs)


@given(any_edges)
def test_a_drawing_describes_each_operator_once_and_each_edge_once(edges: list[Edge]) -> None:
    lines = draw("any", OPERATORS, edges).splitlines()[1:]
    described = [line.split("▶ ")[-1].partition(":")[0] for line in lines if ":" in line]
    assert sorted(described) == sorted(NAMES)
    arrows = [line for line in lines if "▶" in line]
    assert len(arrows) == len(edges)
