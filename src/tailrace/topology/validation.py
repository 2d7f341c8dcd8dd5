"""A graph can run when every operator lies on a way from a source to a sink, no way leads back, and what a
committing sink remembers is asked again in the task that remembers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.errors import TopologyError
from tailrace.topology.graph import Edge, OnError, Operator, Port, Role


def validate(name: str, operators: Sequence[Operator], edges: Sequence[Edge]) -> None:
    """Raise ``TopologyError`` on the first fault of the graph as a whole."""
    _check_ends(name, operators)
    order = topological_order(operators, edges)
    _check_reached(order, edges)
    _check_consumed(order, edges)
    _check_dead_letters(order, edges)
    _check_placement(order, edges)


def topological_order(operators: Sequence[Operator], edges: Iterable[Edge]) -> tuple[Operator, ...]:
    """Every operator after all that feed it; among equals in the order of declaration."""
    upstreams: dict[str, set[str]] = {operator.name: set() for operator in operators}
    for edge in edges:
        upstreams[edge.downstream].add(edge.upstream)
    order: list[Operator] = []
    waiting = list(operators)
    placed: set[str] = set()
    while waiting:
        ready = next((operator for operator in waiting if upstreams[operator.name] <= placed), None)
        if ready is None:
            raise _cycle_error(waiting[0].name, upstreams, placed)
        waiting.remove(ready)
        order.append(ready)
        placed.add(ready.name)
    return tuple(order)


def _cycle_error(start: str, upstreams: dict[str, set[str]], placed: set[str]) -> TopologyError:
    """Walk upstream among the operators that could not be placed: each has one such upstream, so the walk returns."""
    path = [start]
    while path.count(path[-1]) == 1:
        path.append(min(upstreams[path[-1]] - placed))
    ring = path[path.index(path[-1]) :][::-1]
    first = min(range(len(ring) - 1), key=lambda index: ring[index])
    ring = [*ring[first:-1], *ring[: first + 1]]
    return TopologyError(
        f"tuples would go round for ever: cycle={' -> '.join(ring)}: is one of these edges the wrong way?"
    )


def _check_ends(name: str, operators: Sequence[Operator]) -> None:
    roles = {operator.role for operator in operators}
    if Role.SOURCE not in roles:
        raise TopologyError(f"no source: topology={name}: did you forget topology.source(…)?")
    if Role.SINK not in roles:
        raise TopologyError(f"no sink: topology={name}: did you forget .sink(…)?")


def _check_reached(order: Sequence[Operator], edges: Sequence[Edge]) -> None:
    fed = {edge.downstream for edge in edges}
    for operator in order:  # without cycles, an operator that is fed at all is fed by a source in the end
        if operator.role is not Role.SOURCE and operator.name not in fed:
            raise TopologyError(
                f"an operator has no path from a source: operator={operator.name}: did you forget to connect it?"
            )


def _check_consumed(order: Sequence[Operator], edges: Sequence[Edge]) -> None:
    consumed = {edge.upstream for edge in edges if edge.port is Port.MAIN}
    for operator in order:  # without cycles, a way that never breaks off ends in a sink
        if operator.role is not Role.SINK and operator.name not in consumed:
            raise TopologyError(
                f"an operator does nothing with its output: operator={operator.name}: did you forget .sink(…)?"
            )


def _check_dead_letters(order: Sequence[Operator], edges: Sequence[Edge]) -> None:
    consumed = {edge.upstream for edge in edges if edge.port is Port.DEAD_LETTERS}
    for operator in order:
        if operator.on_error is OnError.DEAD_LETTER and operator.name not in consumed:
            raise TopologyError(
                f"dead letters go nowhere: operator={operator.name} on_error='dead_letter': "
                "did you forget .dead_letters.sink(…)?"
            )


def _check_placement(order: Sequence[Operator], edges: Sequence[Edge]) -> None:
    """A re-emitted tuple must meet the sink task that knows whether it was committed.

    Other groupings into a committing sink are the router's care; a ``local`` edge can only follow its upstream.
    """
    settled = _settled(order, edges)
    committing = {operator.name for operator in order if operator.role is Role.SINK and operator.body.committing}
    for edge in edges:
        if _is_local(edge) and edge.downstream in committing and edge.upstream not in settled:
            loose = _first_loose(edge.upstream, edges, settled)
            raise TopologyError(
                "a re-emitted tuple could reach another task of a committing sink, which does not know that it was "
                f"committed: sink={edge.downstream} grouping=local upstream={edge.upstream}: "
                f"could {loose} be grouped by fields(…), or {edge.downstream} by shuffle()?"
            )


def _first_loose(name: str, edges: Sequence[Edge], settled: set[str]) -> str:
    """Follow local edges upstream to the operator whose own grouping does not settle its task."""
    for edge in edges:
        if edge.downstream == name and _is_local(edge) and edge.upstream not in settled:
            return _first_loose(edge.upstream, edges, settled)
    return name


def _settled(order: Sequence[Operator], edges: Sequence[Edge]) -> set[str]:
    """Operators that process a re-emitted tuple in the task that processed it first."""
    settled: set[str] = set()
    for operator in order:
        inputs = [edge for edge in edges if edge.downstream == operator.name]
        if operator.tasks == 1 or all(_keeps_task(edge, settled) for edge in inputs):  # a source has no inputs
            settled.add(operator.name)
    return settled


def _keeps_task(edge: Edge, settled: set[str]) -> bool:
    # A broadcast reaches all tasks each time, and its copies are told apart by their task.
    return edge.grouping.keyed or edge.grouping.name == "broadcast" or (_is_local(edge) and edge.upstream in settled)


def _is_local(edge: Edge) -> bool:
    return edge.grouping.name == "local"
