"""A topology as text: one line an operator, below the operator that feeds it.

An operator with several inputs is drawn in full at the first and only named at the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.topology.graph import Edge, Kind, OnError, Operator, Port, Role


def draw(name: str, operators: Sequence[Operator], edges: Sequence[Edge]) -> str:
    """The drawing, also of a graph that is not valid yet."""
    return "\n".join([f"topology {name}", *_trees({operator.name: operator for operator in operators}, edges)])


def describe(operator: Operator) -> str:
    """``count: map, 4 tasks, stateful``: what is not the default is said, the rest is not."""
    words = [operator.role.value, _count(operator.tasks)]
    if operator.kind is not Kind.AUTO:
        words.append(operator.kind.value)
    if operator.stateful:
        words.append("stateful")
    if not operator.idempotent:
        words.append("not idempotent")
    if operator.on_error is not OnError.FAIL:
        words.append(f"on error {operator.on_error.value}")
    return f"{operator.name}: {', '.join(words)}"


def _count(tasks: int | None) -> str:
    if tasks is None:
        return "1 task per worker"
    return "1 task" if tasks == 1 else f"{tasks} tasks"


def _trees(operators: dict[str, Operator], edges: Sequence[Edge]) -> Iterator[str]:
    drawn: set[str] = set()
    sources = [operator for operator in operators.values() if operator.role is Role.SOURCE]
    for root in [*sources, *operators.values()]:  # those that no source reaches come last
        if root.name not in drawn:
            drawn.add(root.name)
            yield describe(root)
            yield from _branches(root.name, operators, edges, drawn)


def _branches(root: str, operators: dict[str, Operator], edges: Sequence[Edge], drawn: set[str]) -> Iterator[str]:
    """With a stack of its own: a chain may be longer than Python's recursion limit."""
    stack = _children(root, "", edges)
    while stack:
        edge, margin, last = stack.pop()
        arrow = f"{margin}{'└─' if last else '├─'} {_label(edge)} ─▶ "
        if edge.downstream in drawn:
            yield f"{arrow}{edge.downstream} (see above)"
            continue
        drawn.add(edge.downstream)
        yield arrow + describe(operators[edge.downstream])
        stack += _children(edge.downstream, margin + ("   " if last else "│  "), edges)


def _children(name: str, margin: str, edges: Sequence[Edge]) -> list[tuple[Edge, str, bool]]:
    """Outgoing edges, the first on top of the stack."""
    outgoing = [edge for edge in edges if edge.upstream == name]
    return [(edge, margin, edge is outgoing[-1]) for edge in reversed(outgoing)]


def _label(edge: Edge) -> str:
    return edge.grouping.name if edge.port is Port.MAIN else f"dead letters, {edge.grouping.name}"
