"""Functions and methods that cannot take what they will be given are refused in the call that declares them."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import tailrace as tr
from tailrace.errors import TopologyError
from tailrace.policy.signatures import misfit


@pytest.fixture
def lines() -> tr.Stream:
    return tr.Topology("arguments").source("lines", tr.from_iterable([]))


def text_of(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(TopologyError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def two(a: int, b: int) -> int:
    return a + b


def named(*, value: int) -> int:
    return value


async def none() -> None:
    pass


class Calls:
    def __call__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (two, "function=two signature=(a, b)"),
        (named, "function=named signature=(*, value)"),
        (none, "function=none signature=()"),
        (Calls(), "function=Calls signature=()"),
        (functools.partial(two, 1, 2), "function=two signature=()"),
        (functools.partial(two, 1, 2, 3), "function=two signature=(a, b)"),
    ],
)
def test_functions(lines: tr.Stream, function: Any, told: str) -> None:
    rest = f"operator=x {told}: did you mean def f(value)?"
    for declare in (lines.map, lines.filter, lines.flat_map):
        assert text_of(declare, "x", function) == f"a function does not take one tuple: {rest}"
    assert text_of(lines.map_batch, "x", function) == f"a function does not take one list: {rest}"


def test_a_lambda(lines: tr.Stream) -> None:
    told = text_of(lines.map, "x", lambda: 1)
    assert told.startswith("a function does not take one tuple: operator=x function=") and "signature=()" in told


def test_a_long_signature_is_cut_and_types_are_left_out(lines: tr.Stream) -> None:
    function = eval(f"lambda {', '.join(f'argument{i}' for i in range(99))}: 1")
    assert len(text_of(lines.map, "x", function)) < 400


@pytest.mark.parametrize("function", [str, int, print, len, min, "".join, dict, functools.partial(two, 1), str.upper])
def test_what_fits_or_cannot_be_known_passes(lines: tr.Stream, function: Any) -> None:
    lines.map("x", function)


def test_annotations_that_cannot_be_evaluated_do_no_harm() -> None:
    def odd(value: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    assert misfit(odd, 1) is None and misfit(odd, 2) == "(value)"


class NeedsOne:
    def __init__(self, path: str) -> None:
        pass

    def process(self, value: int) -> int:
        return value


def test_a_class_that_cannot_be_made(lines: tr.Stream) -> None:
    assert text_of(lines.map, "x", NeedsOne) == (
        "a class is called without arguments, once a task, and wants some: operator=x class=NeedsOne "
        "signature=(path): did you mean functools.partial(NeedsOne, …)?"
    )
    lines.map("x", functools.partial(NeedsOne, "here"))
    assert "signature=(path)" in text_of(lines.map, "y", functools.partial(NeedsOne, "here", "there"))


class Good:
    def open(self, context: tr.Context) -> None: ...

    def process(self, value: int) -> int:
        return value

    def close(self) -> None: ...


class BadProcess(Good):
    def process(self) -> int:  # type: ignore[override]
        return 1


class ForgotSelf(Good):
    def process(value: int) -> int:  # type: ignore[override]
        return value


class BadOpen(Good):
    def open(self) -> None: ...  # type: ignore[override]


class BadClose(Good):
    def close(self, why: str) -> None: ...  # type: ignore[override]


class Static(Good):
    @staticmethod
    def process(value: int) -> int:  # type: ignore[override]
        return value

    @classmethod
    def open(cls, context: tr.Context) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            BadProcess,
            "process does not take one tuple: operator=x class=BadProcess signature=(self): did you mean def ",
        ),
        (ForgotSelf, "process does not take one tuple: operator=x class=ForgotSelf signature=(value): did you mean "),
        (
            BadOpen,
            "open does not take a context: operator=x class=BadOpen signature=(self): did you mean def open(self",
        ),
        (
            BadClose,
            "close does not take nothing: operator=x class=BadClose signature=(self, why): did you mean def clo",
        ),
    ],
)
def test_methods(lines: tr.Stream, body: Any, told: str) -> None:
    assert text_of(lines.map, "x", body).startswith(told)
    assert text_of(lines.map, "x", functools.partial(body)).startswith(told)


@pytest.mark.parametrize("body", [Good, Static])
def test_methods_that_fit(lines: tr.Stream, body: Any) -> None:
    lines.map("x", body)


def test_key_functions() -> None:
    for grouping in (tr.fields, tr.partial_key, tr.least_work, tr.osg):
        assert text_of(grouping, two) == (
            f"a grouping's key function does not take one tuple: grouping={grouping.__name__} signature=(a, b): "
            f"did you mean {grouping.__name__}(lambda value: …)?"
        )


def test_a_function_instead_of_a_sink(lines: tr.Stream) -> None:
    assert text_of(lines.sink, "o", print) == (
        "not a sink but a function: operator=o function=print: did you mean to_call(print)?"
    )
    assert text_of(lines.sink, "o", lambda row: None).endswith("function=<lambda>: did you mean to_call(f)?")


class OddSource:
    replayable = True

    def splits(self) -> list[str]:
        return ["0"]

    def open(self, start: Any) -> Any:
        raise NotImplementedError


class OddSink:
    committing = False

    def open(self) -> Any:
        raise NotImplementedError


def test_connectors_of_ones_own(lines: tr.Stream) -> None:
    assert text_of(lines.topology.source, "s", OddSource()) == (
        "a connector's splits does not take one argument: operator=s type=OddSource signature=(): "
        "did you mean splits(self, tasks)?"
    )
    assert text_of(lines.sink, "o", OddSink()) == (
        "a connector's open does not take one argument: operator=o type=OddSink signature=(): "
        "did you mean open(self, context)?"
    )


@pytest.mark.parametrize("option", ["stateful", "mergeable", "idempotent"])
@pytest.mark.parametrize("value", ["no", 1, None, [True]])
def test_flags(lines: tr.Stream, option: str, value: Any) -> None:
    assert text_of(lines.map, "x", str, **{option: value}) == (
        f"{option} is neither True nor False: operator=x {option}={value!r}: did you mix two up?"
    )


@pytest.mark.parametrize("option", ["kind", "on_error"])
def test_choices_of_another_type(lines: tr.Stream, option: str) -> None:
    assert text_of(lines.map, "x", str, **{option: ["skip"]}).startswith(f"unknown {option}: operator=x")
