"""The test kit finds what it is there to find: each broken grouping below breaks one clause of the law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tailrace.testing import ManualClock, check_grouping

Choose = Callable[[Sequence[Any]], Sequence[int]]


@dataclass
class _Chooser:
    choose_many: Choose


@dataclass(frozen=True)
class _Broken:
    """``bind`` is whatever the test says."""

    make: Callable[[int, Random], Choose]
    keyed: bool = False
    name: str = "broken"

    def bind(self, tasks: int, rng: Random) -> _Chooser:
        return _Chooser(self.make(tasks, rng))


def _by_builtin_hash(tasks: int, rng: Random) -> Choose:
    return lambda values: [hash(value) % tasks for value in values]


def _by_seed(tasks: int, rng: Random) -> Choose:
    offset = rng.randrange(tasks)
    return lambda values: [(len(value) + offset) % tasks for value in values]


def _by_past(tasks: int, rng: Random) -> Choose:
    seen: dict[Any, int] = {}
    return lambda values: [seen.setdefault(value, len(seen)) % tasks for value in values]


def _by_position_in_list(tasks: int, rng: Random) -> Choose:
    return lambda values: [index % tasks for index, _ in enumerate(values)]


@dataclass
class _SharedState:
    """Round robin whose turn belongs to the grouping, so that its choosers disturb each other."""

    name: str = "sharing"
    keyed: bool = False
    turns: list[int] = field(default_factory=lambda: [0])

    def bind(self, tasks: int, rng: Random) -> _Chooser:
        self.turns[0] = 0

        def choose_many(values: Sequence[Any]) -> Sequence[int]:
            self.turns[0] += len(values)
            return [(self.turns[0] - len(values) + index) % tasks for index in range(len(values))]

        return _Chooser(choose_many)


@pytest.mark.parametrize(
    ("grouping", "law"),
    [
        (_Broken(lambda tasks, rng: lambda values: [tasks] * len(values)), "a choice is ALL or lies in range(tasks)"),
        (_Broken(lambda tasks, rng: lambda values: [-2] * len(values)), "a choice is ALL or lies in range(tasks)"),
        (_Broken(lambda tasks, rng: lambda values: [0.0] * len(values)), "a choice is ALL or lies in range(tasks)"),
        (_Broken(lambda tasks, rng: lambda values: [0]), "one choice a value"),
        (_Broken(_by_position_in_list), "a list and its pieces give the same choices"),
        (_SharedState(), "equal seeds give equal choices"),
        (_Broken(_by_past, keyed=True), "a keyed grouping's choice does not depend on the past"),
        (_Broken(_by_seed, keyed=True), "a keyed grouping's choice does not depend on the seed"),
        (_Broken(_by_builtin_hash, keyed=True), "equal choices in any process"),
    ],
)
def test_a_broken_grouping_is_found(grouping: Any, law: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_grouping(grouping)
    assert str(caught.value).startswith(f"grouping breaks its law: {law}: grouping={grouping.name} tasks=")


def test_the_message_names_the_tuple_and_both_choices() -> None:
    with pytest.raises(AssertionError) as caught:
        check_grouping(_Broken(_by_position_in_list), tasks=[2], values=["a", "b"], seeds=[5])
    assert str(caught.value) == (
        "grouping breaks its law: a list and its pieces give the same choices: "
        "grouping=broken tasks=2 seed=5 index=1 value='b' expected=1 given=0"
    )


def test_a_grouping_that_fails_in_the_other_process_says_why() -> None:
    with pytest.raises(AssertionError, match="equal choices in any process: grouping=broken error=ZeroDivisionError"):
        check_grouping(_Broken(_OnlyHere()), tasks=[1], seeds=[0])


class _OnlyHere:
    """Works until it has travelled."""

    def __init__(self, divisor: int = 1) -> None:
        self.divisor = divisor

    def __reduce__(self) -> Any:
        return _OnlyHere, (0,)

    def __call__(self, tasks: int, rng: Random) -> Choose:
        return lambda values: [0 // self.divisor] * len(values)


def test_seeded_groupings_that_are_not_keyed_are_fine() -> None:
    check_grouping(_Broken(_by_seed))


def test_nothing_to_check_is_refused() -> None:
    with pytest.raises(AssertionError, match="nothing to check: tasks, values and seeds need at least one entry each"):
        check_grouping(_Broken(_by_seed), values=[])


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(5)
    assert (clock(), clock()) == (5, 5)
    clock.advance(10)
    clock.advance(0)
    assert clock() == 15
    assert repr(clock) == "ManualClock(15)"


def test_a_manual_clock_does_not_go_back() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError) as caught:
        clock.advance(-1)
    assert str(caught.value) == "a monotonic clock cannot go back: ns=-1: are the two times swapped?"
    assert clock() == 0
