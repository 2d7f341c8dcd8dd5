"""Placeholders for the two ends of a topology that is applied to a DataFrame.

They can be neither read nor written: ``apply`` works on a copy of the topology that has connectors in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailrace.connector import Reader, Sink, SinkContext, Source, SplitStart, Writer
from tailrace.errors import TopologyError
from tailrace.topology.body import is_async
from tailrace.topology.graph import Operator, Role


@dataclass(frozen=True)
class InputRows:
    """Stands for the rows of the DataFrame."""

    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return ()

    def open(self, start: SplitStart) -> Reader[dict[str, Any]]:
        raise TopologyError(f"no DataFrame stands behind this input: split={start.split}: {_HINT}")


@dataclass(frozen=True)
class OutputRows:
    """Stands for the rows of the result. The sink in its place commits, so the same groupings are refused."""

    committing: bool = True

    def open(self, context: SinkContext) -> Writer[Any]:
        raise TopologyError(f"no DataFrame stands behind this output: operator={context.operator}: {_HINT}")


_HINT = "did you mean topology.apply(df, schema)?"


def refuse_second(topology: str, operators: Sequence[Operator], kind: type, name: str) -> None:
    """Raise TopologyError if there is a placeholder of this kind already."""
    for other in _those(operators, kind):
        what, hint = (
            ("inputs", "is the other one a topology.source(…), or could the DataFrames be united before?")
            if kind is InputRows
            else ("outputs", "did you mean tr.union(a, b).output(…), or another sink?")
        )
        raise TopologyError(f"a topology cannot have two {what}: topology={topology} {other.name}, {name}: {hint}")


def refuse_placeholders(topology: str, operators: Sequence[Operator]) -> None:
    """Raise TopologyError if there is an end that only ``apply`` can fill."""
    for operator in (*_those(operators, InputRows), *_those(operators, OutputRows)):
        what = "input" if isinstance(operator.body, InputRows) else "output"
        raise TopologyError(
            f"a topology with an {what} is applied to a DataFrame, and does not run by itself: topology={topology} "
            f"{what}={operator.name}: {_HINT}"
        )


def check_placeholders(topology: str, operators: Sequence[Operator]) -> None:
    """Raise TopologyError unless both ends are there for ``apply`` to fill."""
    if not _those(operators, InputRows):
        raise TopologyError(
            f"no input to apply to a DataFrame: topology={topology}: "
            "did you forget topology.input(…), or did you mean topology.run(spark)?"
        )
    if not _those(operators, OutputRows):
        raise TopologyError(f"no output to make a DataFrame of: topology={topology}: did you forget .output(…)?")


def filled(operator: Operator, source: Source[Any], sink: Sink[Any]) -> Operator:
    """The operator, with a connector in the place of its placeholder."""
    if isinstance(operator.body, InputRows):
        return replace(operator, body=source)
    return replace(operator, body=sink) if isinstance(operator.body, OutputRows) else operator


def takes_by_load(operator: Operator) -> bool:
    """Whether each task of an operator runs one tuple at a time, and any of them may run any tuple.

    Tasks that have many calls under way, or run batches, need more than one tuple before them.
    """
    by_itself = operator.role in (Role.MAP, Role.FLAT_MAP, Role.FILTER) and operator.calls is None
    return by_itself and operator.tasks != 1 and not is_async(operator.body) and not operator.stateful


def _those(operators: Sequence[Operator], kind: type) -> list[Operator]:
    return [operator for operator in operators if isinstance(operator.body, kind)]
