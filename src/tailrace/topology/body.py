"""What an operator's body may be, and how it is to be called.

Either a function of one tuple, shared by all tasks of a worker, or a *factory*: a class with a ``process`` method
(or a ``functools.partial`` of one), called without arguments once a task.
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from typing import Any

from tailrace.errors import TopologyError
from tailrace.topology.graph import Role


def is_factory(body: Any) -> bool:
    """Whether ``body()`` makes the object whose ``process`` takes the tuples; otherwise ``body`` takes them itself."""
    inner = _unwrap(body)
    return isinstance(inner, type) and callable(getattr(inner, "process", None))


def is_async(body: Any) -> bool:
    """Whether taking a tuple gives a coroutine."""
    return inspect.iscoroutinefunction(_code_of(body))


def check_body(operator: str, role: Role, body: Any) -> None:
    """Refuse what can be seen to fail at the first tuple."""
    if not callable(body):
        _refuse_object(operator, body)
    inner = _unwrap(body)
    if isinstance(inner, type) and not is_factory(body) and not _is_converter(inner):
        raise TopologyError(
            f"a class has no process method: operator={operator} class={inner.__qualname__}: "
            "did you forget to define process(self, value)?"
        )
    for method in ("open", "close"):
        if is_factory(body) and inspect.iscoroutinefunction(getattr(inner, method, None)):
            raise TopologyError(
                f"{method} cannot be async: operator={operator} class={inner.__qualname__}: "
                "could it do its waiting at the first tuple instead?"
            )
    code = _code_of(body)
    if inspect.isasyncgenfunction(code):
        raise TopologyError(
            f"an async generator cannot be an operator: operator={operator} role={role.value}: "
            "could it be an async function that returns a list, in flat_map?"
        )
    if role is not Role.FLAT_MAP and inspect.isgeneratorfunction(code):
        raise TopologyError(
            f"a generator gives no single result: operator={operator} role={role.value}: did you mean flat_map?"
        )


def _refuse_object(operator: str, body: Any) -> None:
    kind = type(body).__qualname__
    if callable(getattr(body, "process", None)):
        raise TopologyError(
            f"an object cannot be shared by all tasks: operator={operator} type={kind}: "
            f"did you mean the class {kind}, or functools.partial({kind}, …), so that each task has its own?"
        )
    raise TopologyError(f"not a function: operator={operator} type={kind}: did you pass the result of calling it?")


def _unwrap(body: Any) -> Any:
    while isinstance(body, partial):
        body = body.func
    return body


def _is_converter(cls: type) -> bool:
    """Classes like ``int`` and ``Decimal`` are used as functions; a class of one's own without process is a slip."""
    return cls.__module__.partition(".")[0] in sys.stdlib_module_names


def _code_of(body: Any) -> Any:
    """The function that runs when a tuple is taken."""
    inner = _unwrap(body)
    if isinstance(inner, type):
        return getattr(inner, "process", None)
    if inspect.isroutine(inner):
        return inner
    return getattr(type(inner), "__call__", None)  # noqa: B004 - not a test for callability
