"""Each argument of a declaration is checked in the call that declares it, so that the traceback points at the line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from tailrace.errors import TopologyError, did_you_mean, shorten
from tailrace.policy.groupings.api import Grouping
from tailrace.policy.groupings.feedback import has_feedback
from tailrace.policy.signatures import misfit
from tailrace.topology.graph import Edge, Operator, Port, Role

_NAME = re.compile(r"\w[\w.-]{0,99}")  # becomes part of file names and metric names, hence the limit of 100

MOST_TASKS = 10_000
"""Most tasks of one operator. A link to each of them from each task of another one takes more files than there are."""

_Choice = TypeVar("_Choice", bound=Enum)


def check_name(what: str, name: Any) -> str:
    """Return the name. Raises TopologyError unless it can become part of file names and metric names."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise TopologyError(
        f"not a valid {what} name: name={shorten(name)}: "
        "is it 1 to 100 letters, digits, '_', '-' or '.', not beginning with '-' or '.'?"
    )


def check_positive(operator: str, option: str, value: Any) -> int:
    """Return the value. Raises TopologyError unless it is a positive integer."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        if option == "tasks" and value > MOST_TASKS:
            raise TopologyError(
                f"too many tasks: operator={operator} tasks={shorten(value)} most={MOST_TASKS}: is it the right number?"
            )
        return value
    raise TopologyError(
        f"{option} is not a positive integer: operator={operator} {option}={shorten(value)}: "
        "is it computed from something that can be zero or a fraction?"
    )


def check_wait(operator: str, value: Any) -> float:
    """Return the value. Raises TopologyError unless it is a number of milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return value
    raise TopologyError(
        f"max_wait_ms is not a time: operator={operator} max_wait_ms={shorten(value)}: "
        "is it a number of milliseconds, zero or more?"
    )


def check_flag(operator: str, option: str, value: Any) -> bool:
    """Return the value. Raises TopologyError unless it is True or False."""
    if isinstance(value, bool):
        return value
    raise TopologyError(
        f"{option} is neither True nor False: operator={operator} {option}={shorten(value)}: did you mix two up?"
    )


def check_choice(operator: str, option: str, choices: type[_Choice], value: Any) -> _Choice:
    """Return the choice of this value. Raises TopologyError, with the closest one, if there is none."""
    try:
        return choices(value)
    except (ValueError, TypeError):
        hint = did_you_mean(value, [choice.value for choice in choices], "{!r}")
        raise TopologyError(f"unknown {option}: operator={operator} {option}={shorten(value)}: {hint}") from None


def check_grouping(operator: str, grouping: Any) -> Grouping:
    """Return the grouping. Raises TopologyError unless it is one that a topology can have."""
    complete = all(hasattr(grouping, attribute) for attribute in ("name", "keyed", "bind"))
    if complete and not isinstance(grouping, type):
        if getattr(grouping, "simulation_only", False):
            raise TopologyError(
                f"this grouping knows what tuples cost beforehand, as only a simulation can: operator={operator} "
                f"grouping={grouping.name}: did you mean least_work(…)?"
            )
        return grouping  # type: ignore[no-any-return]
    if callable(grouping):
        name = getattr(grouping, "__name__", type(grouping).__name__)
        raise TopologyError(f"not a grouping: operator={operator} grouping={name}: did you forget the parentheses?")
    raise TopologyError(
        f"not a grouping: operator={operator} grouping={shorten(grouping)}: did you mean shuffle() or fields(…)?"
    )


def check_source(operator: str, source: Any) -> None:
    """Raise TopologyError unless this has the members of ``Source``."""
    _check_connector(operator, source, "source", ("splits", "open", "replayable"), "from_iterable(…)")
    _check_calls(operator, source, {"splits": "tasks", "open": "start"})


def check_sink(operator: str, sink: Any) -> None:
    """Raise TopologyError unless this has the members of ``Sink``."""
    if callable(sink) and not isinstance(sink, type) and not hasattr(sink, "open"):
        name = getattr(sink, "__name__", type(sink).__name__)
        shown = name if name.isidentifier() else "f"
        raise TopologyError(
            f"not a sink but a function: operator={operator} function={name}: did you mean to_call({shown})?"
        )
    _check_connector(operator, sink, "sink", ("open", "committing"), "to_jsonl(…)")
    _check_calls(operator, sink, {"open": "context"})


def _check_calls(operator: str, connector: Any, methods: Mapping[str, str]) -> None:
    for method, argument in methods.items():
        signature = misfit(getattr(connector, method), 1)
        if signature is not None:
            raise TopologyError(
                f"a connector's {method} does not take one argument: operator={operator} "
                f"type={type(connector).__qualname__} signature={signature}: did you mean {method}(self, {argument})?"
            )


def _check_connector(operator: str, connector: Any, what: str, interface: tuple[str, ...], example: str) -> None:
    if isinstance(connector, type):
        raise TopologyError(
            f"not a {what} but a class: operator={operator} class={connector.__qualname__}: "
            "did you forget the parentheses?"
        )
    missing = [attribute for attribute in interface if not hasattr(connector, attribute)]
    if missing:
        raise TopologyError(
            f"not a {what}: operator={operator} type={type(connector).__qualname__} missing={','.join(missing)}: "
            f"did you mean a connector such as {example}?"
        )


def check_concurrency(operator: str, value: Any, asynchronous: bool) -> int:
    """Return the value. Raises TopologyError if the function is not async, or the value not positive."""
    if not asynchronous:
        raise TopologyError(
            f"concurrency is for async functions only: operator={operator} concurrency={shorten(value)}: "
            f"did you mean tasks={shorten(value)}, or an async def?"
        )
    return check_positive(operator, "concurrency", value)


def check_edge(operators: Mapping[str, Operator], edges: list[Edge], edge: Edge) -> None:
    """Whether this edge may join the others. Both of its operators are there."""
    upstream, downstream = operators[edge.upstream], operators[edge.downstream]
    if upstream.role is Role.SINK and edge.port is Port.MAIN:
        raise TopologyError(
            f"a sink has no output: upstream={upstream.name} downstream={downstream.name}: "
            "did you mean the stream that feeds the sink?"
        )
    if downstream.role is Role.SOURCE:
        raise TopologyError(
            f"a source takes no input: upstream={upstream.name} downstream={downstream.name}: did you swap the two?"
        )
    if any((edge.upstream, edge.downstream, edge.port) == (old.upstream, old.downstream, old.port) for old in edges):
        raise TopologyError(
            f"an edge is there already, and a second one would double every tuple: upstream={upstream.name} "
            f"downstream={downstream.name} port={edge.port.value}: is a stream united with itself?"
        )
    if edge.grouping.name == "local" and upstream.tasks != downstream.tasks:
        raise TopologyError(
            f"a local edge joins operators with different numbers of tasks: {upstream.name}={_count(upstream)} "
            f"{downstream.name}={_count(downstream)}: could you leave out tasks of {downstream.name}?"
        )
    if has_feedback(edge.grouping):
        _check_load_aware(downstream, edge.grouping.name)


def _check_load_aware(operator: Operator, grouping: str) -> None:
    """Refuse a grouping by load into an operator that needs each tuple in a certain task."""
    if operator.role is Role.SINK and operator.body.committing:
        raise TopologyError(
            "a sink that commits must get a re-emitted tuple in the task that knows it, so load cannot decide: "
            f"operator={operator.name} grouping={grouping}: did you mean shuffle() or fields(…)?"
        )
    if operator.stateful and not operator.mergeable:
        raise TopologyError(
            "a grouping by load spreads what belongs together over several tasks, and their state with it: "
            f"operator={operator.name} grouping={grouping} stateful=True: did you mean fields(…), or is what the tasks "
            "keep merged further down, which mergeable=True says?"
        )


def _count(operator: Operator) -> str:
    return "one-per-worker" if operator.tasks is None else str(operator.tasks)
