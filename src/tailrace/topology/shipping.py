"""Parts of operators travel to the workers as pickles; a part that cannot travel is found before the run.

Python's own message says *what* cannot be pickled ("cannot pickle '_thread.lock' object"); the search here says
*where* it is: which variable, global, default or attribute of the user's function leads to it.
"""

from __future__ import annotations

import dis
import io
from collections.abc import Iterator
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any

import cloudpickle

from tailrace.errors import TopologyError, shorten

_DEPTH_LIMIT = 8  # steps from the user's function to the culprit; deeper ones are named by their eighth holder


_HINTS = {
    "function": "could a class open it in open(context) instead?",
    "function of calls": "could it do without it?",
    "grouping": "could the key function do without it?",
    "source": "could its open() make it instead?",
    "sink": "could its open() make it instead?",
}


def check_shippable(operator: str, what: str, thing: Any) -> None:
    """Refuse a function, connector or grouping that cannot be pickled, and name the variable that is to blame."""
    error = _failure(thing)
    if error is None:
        return
    path, culprit = _find_culprit(thing, "", _DEPTH_LIMIT, set())
    kind = type(culprit)
    facts = " ".join(filter(None, [f"operator={operator}", path, f"type={kind.__module__}.{kind.__qualname__}"]))
    if _is_of_spark(kind):
        hint = next((hint for name, hint in _SPARK_HINTS.items() if name in kind.__name__), _NO_SPARK)
        raise TopologyError(f"a Spark object cannot be used in a worker: {facts}: {hint}") from error
    raise TopologyError(f"a {what} cannot be shipped to the workers: {facts}: {_HINTS[what]}") from error


_NO_SPARK = "workers have no Spark session; could the driver do this?"
_SPARK_HINTS = {
    "DataFrame": "did you mean to collect() it first, or from_dataframe(…) as a source?",
    "RDD": "did you mean to collect() it first, or from_dataframe(…) as a source?",
    "Broadcast": "did you mean its .value, taken on the driver?",
    "Accumulator": "did you mean to count rows at a sink?",
}
_REGISTERED = ("Broadcast", "Accumulator")  # these can be pickled, and are found to be unknown in the worker


def _is_of_spark(kind: type) -> bool:
    """By name: this layer does not import Spark."""
    return kind.__module__.partition(".")[0] in ("pyspark", "py4j")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Refuses what would be pickled and of no use."""

    def reducer_override(self, thing: Any) -> Any:
        kind = type(thing)
        if kind.__name__ in _REGISTERED and _is_of_spark(kind):
            raise TypeError(f"{kind.__name__} is of use to Spark's own tasks only")
        return super().reducer_override(thing)


def _failure(thing: Any) -> Exception | None:
    try:
        _Pickler(io.BytesIO()).dump(thing)
    except Exception as error:  # __reduce__ of the user's objects may raise anything
        return error
    return None


def _find_culprit(thing: Any, path: str, depth: int, seen: set[int]) -> tuple[str, Any]:
    """The innermost part that cannot be pickled, and the way to it. What is inside of Spark's objects tells nothing."""
    seen.add(id(thing))
    if depth > 0 and not _is_of_spark(type(thing)):
        for step, part in _parts(thing, first=not path):
            if id(part) not in seen and _failure(part) is not None:
                return _find_culprit(part, path + step, depth - 1, seen)
    return path, thing


def _parts(thing: Any, first: bool) -> Iterator[tuple[str, Any]]:
    """The parts that would be pickled along with a thing, each with its name as one would write or say it."""
    if isinstance(thing, partial):
        yield ("argument=" if first else ":") + "func", thing.func
        yield from _named("argument" if first else "", enumerate(thing.args))
        yield from _named("argument" if first else "", thing.keywords.items())
    elif isinstance(thing, MethodType | BuiltinMethodType):
        yield ("attribute=" if first else ".") + "__self__", thing.__self__
    elif isinstance(thing, FunctionType):
        yield from _variables(thing, first)
    elif isinstance(thing, dict):
        yield from ((f"[{shorten(key, 40)}]", value) for key, value in thing.items())
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((f"[{index}]", value) for index, value in enumerate(thing))
    else:
        yield from _attributes(thing, first)


def _named(kind: str, items: Any) -> Iterator[tuple[str, Any]]:
    for name, value in items:
        yield (f"{kind}={name}" if kind else f":{name}"), value


def _variables(function: FunctionType, first: bool) -> Iterator[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    filled = ((name, cell.cell_contents) for name, cell in cells if _is_filled(cell))
    yield from _named("variable" if first else "", filled)
    names = sorted(_global_names(function.__code__))
    known = ((name, function.__globals__[name]) for name in names if name in function.__globals__)
    yield from _named("global" if first else "", known)
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from _named(
        "default" if first else "", zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    )
    yield from _named("default" if first else "", (function.__kwdefaults__ or {}).items())
    yield from _named("attribute" if first else "", vars(function).items())


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises when the variable has no value yet
    except ValueError:
        return False
    return True


def _global_names(code: CodeType) -> set[str]:
    """Names that the code, or a function defined within it, may look up among the globals."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _attributes(thing: Any, first: bool) -> Iterator[tuple[str, Any]]:
    members = _class_members(thing) if isinstance(thing, type) else _state(thing)
    for name, value in members.items():
        yield (f"attribute={name}" if first else f".{name}"), value


def _class_members(cls: type) -> dict[str, Any]:
    """Without the descriptors that Python adds to every class: these never travel."""
    return {
        name: value.__func__ if isinstance(value, staticmethod | classmethod) else value
        for name, value in vars(cls).items()
        if not isinstance(value, GetSetDescriptorType | MemberDescriptorType)
    }


def _state(thing: Any) -> dict[str, Any]:
    """The attributes that are pickled with an object, slots included."""
    try:
        state = thing.__getstate__()
    except Exception:  # the object is then itself the culprit
        return {}
    layers = state if isinstance(state, tuple) else (state,)
    return {name: value for layer in layers if isinstance(layer, dict) for name, value in layer.items()}
