"""The body of an operator, and how it is to be called.

Either a function of one tuple, shared by all tasks of a worker, or a *factory*: a class with a ``process`` method
(or a ``functools.partial`` of one), called without arguments once a task.
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from typing import Any, Protocol, TypeVar

from tailrace.errors import TopologyError
from tailrace.policy.signatures import misfit
from tailrace.topology.graph import Role

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Processor(Protocol[In, Out]):
    """A class that can be an operator has this method. Each task gets an instance of its own.

    The class may also have ``open(self, context)``, called with a ``Context`` before the first tuple, and
    ``close(self)``, called at the end. If ``process`` is ``async def``, or the operator has ``calls``, these may be
    ``async def`` as well; all of them run in one event loop.

    Example:
        >>> class Numbered:
        ...     def __init__(self) -> None:
        ...         self.count = 0
        ...     def process(self, value: str) -> tuple[int, str]:
        ...         self.count += 1
        ...         return self.count, value
        >>> words = tr.Topology("words").source("words", tr.from_iterable(["a", "b"]))
        >>> words.map("number", Numbered, stateful=True)
        Stream(number.main)
    """

    def process(self, value: In, /) -> Out:
        """Take one tuple and return what becomes of it."""
        ...


def is_factory(body: Any) -> bool:
    """Whether ``body()`` makes the object whose ``process`` takes the tuples; otherwise ``body`` takes them itself."""
    inner = _unwrap(body)
    return isinstance(inner, type) and callable(getattr(inner, "process", None))


def is_async(body: Any) -> bool:
    """Whether taking a tuple gives a coroutine."""
    return inspect.iscoroutinefunction(_code_of(body))


def is_async_method(thing: Any, name: str) -> bool:
    """Whether a class or object has a method of this name that gives a coroutine."""
    return inspect.iscoroutinefunction(getattr(thing, name, None))


def check_body(operator: str, role: Role, body: Any, with_calls: bool = False) -> None:
    """Refuse what can be seen to fail at the first tuple. ``with_calls``: the operator has ``calls=…``."""
    if not callable(body):
        _refuse_object(operator, body)
    inner = _unwrap(body)
    if isinstance(inner, type) and not is_factory(body) and not _is_converter(inner):
        raise TopologyError(
            f"a class has no process method: operator={operator} class={inner.__qualname__}: "
            "did you forget to define process(self, value)?"
        )
    for method in ("open", "close"):
        if is_factory(body) and is_async_method(inner, method) and not (is_async(body) or with_calls):
            raise TopologyError(
                f"{method} is async and process is not, so there is no event loop to run it in: operator={operator} "
                f"class={inner.__qualname__}: did you mean async def process, or calls=tr.Calls(…)?"
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
    _check_arguments(operator, role, body)
    if role is Role.MAP_BATCH and is_async(body):
        raise TopologyError(
            f"a function of a batch cannot be async: operator={operator}: could map do it, one tuple a call?"
        )


def _check_arguments(operator: str, role: Role, body: Any) -> None:
    """Whether all that will be called can take what it will be given."""
    what = "list" if role is Role.MAP_BATCH else "tuple"
    signature = misfit(body, 0 if is_factory(body) else 1)
    inner = _unwrap(body)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    if not is_factory(body):
        if signature is not None:
            raise TopologyError(
                f"a function does not take one {what}: operator={operator} function={name} signature={signature}: "
                "did you mean def f(value)?"
            )
        return
    if signature is not None:
        raise TopologyError(
            f"a class is called without arguments, once a task, and wants some: operator={operator} class={name} "
            f"signature={signature}: did you mean functools.partial({name}, …)?"
        )
    for method, takes, arguments in (("process", f"one {what}", 1), ("open", "a context", 1), ("close", "nothing", 0)):
        signature = _method_misfit(inner, method, arguments)
        if signature is not None:
            hint = {"process": "(self, value)", "open": "(self, context)", "close": "(self)"}[method]
            raise TopologyError(
                f"{method} does not take {takes}: operator={operator} class={name} signature={signature}: "
                f"did you mean def {method}{hint}?"
            )


def _method_misfit(cls: type, name: str, arguments: int) -> str | None:
    found = inspect.getattr_static(cls, name, None)
    method = getattr(cls, name, None)
    if method is None or not callable(method):
        return None
    bound = isinstance(found, staticmethod | classmethod) or not inspect.isfunction(method)
    return misfit(method, arguments if bound else arguments + 1)


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
