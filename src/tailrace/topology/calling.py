"""Checks of an operator's ``calls=…``, and of how it goes together with the operator's other parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.calls import Calls
from tailrace.errors import TopologyError, shorten
from tailrace.topology.graph import Role
from tailrace.topology.shipping import check_shippable

DEFAULT_ON_ERROR = "fail"


def check_calls(operator: str, role: Role, calls: Any, given: Mapping[str, Any]) -> Calls:
    """Refuse options that mean nothing in a topology, or that other parameters of the operator contradict.

    Args:
        operator: its name.
        role: what it does.
        calls: what was given as ``calls``.
        given: all parameters as they were given.
    """
    if not isinstance(calls, Calls):
        raise TopologyError(
            f"not options of calls: operator={operator} calls={shorten(calls)}: did you mean tr.Calls(timeout_s=…)?"
        )
    if role is Role.MAP_BATCH:
        raise TopologyError(
            f"a batch cannot be called with calls=…: operator={operator}: could map do it, one tuple a call?"
        )
    if calls.journal_key is not None:
        raise TopologyError(
            "journal_key names a column of a DataFrame; in a topology the place of a tuple in its source is the key: "
            f"operator={operator} journal_key={shorten(calls.journal_key)}: could you leave it out?"
        )
    if given.get("concurrency") not in (None, calls.concurrency):
        raise TopologyError(
            f"two different values: operator={operator} concurrency={shorten(given['concurrency'])} "
            f"Calls.concurrency={calls.concurrency}: could you leave out the first?"
        )
    check_shippable(operator, "function of calls", calls)
    return calls


def on_error_of(operator: str, calls: Calls, given: Mapping[str, Any]) -> str:
    """The ``on_error`` that holds: the operator's parameter or that of ``Calls``, whichever was given."""
    if calls.on_error == "column":
        raise TopologyError(
            f"a topology has no columns: operator={operator} on_error='column': did you mean 'dead_letter'?"
        )
    own = given.get("on_error", calls.on_error)
    if calls.on_error not in (own, DEFAULT_ON_ERROR):
        raise TopologyError(
            f"two different values: operator={operator} on_error={shorten(own)} Calls.on_error={calls.on_error!r}: "
            "which of them do you mean?"
        )
    return str(own)
