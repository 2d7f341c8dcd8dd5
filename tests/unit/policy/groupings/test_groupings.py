"""Each grouping keeps the law, does what its name says, and says what is wrong with a key."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from random import Random
from typing import Any

import cloudpickle
import pytest

from tailrace.errors import TopologyError
from tailrace.policy import ALL, Grouping, broadcast, fields, local, shuffle, stable_hash
from tailrace.policy.keys import CACHE_LIMIT
from tailrace.testing import check_grouping

EVENTS = [{"user": f"user-{index % 13}", "at": index} for index in range(60)]
PAIRS = [(index % 5, float(index)) for index in range(60)]


@pytest.mark.parametrize(
    ("grouping", "values"),
    [
        (shuffle(), EVENTS),
        (broadcast(), EVENTS),
        (local(), EVENTS),
        (fields("user"), EVENTS),
        (fields(lambda event: (event["user"], event["at"] % 2)), EVENTS),
        (fields(0), PAIRS),
        (fields(-1), PAIRS),
    ],
    ids=["shuffle", "broadcast", "local", "by name", "by function", "by position", "by last position"],
)
def test_the_law_of_groupings(grouping: Grouping, values: list[Any]) -> None:
    check_grouping(grouping, values=values)


@pytest.mark.parametrize("grouping", [shuffle(), broadcast(), local(), fields("user")])
def test_a_grouping_is_a_value(grouping: Any) -> None:
    assert cloudpickle.loads(cloudpickle.dumps(grouping)) == grouping
    with pytest.raises(FrozenInstanceError):
        grouping.own = 3


def test_names_and_keyedness() -> None:
    all_of_them: list[Grouping] = [shuffle(), fields("user"), broadcast(), local()]
    assert [(grouping.name, grouping.keyed) for grouping in all_of_them] == [
        ("shuffle", False),
        ("fields", True),
        ("broadcast", False),
        ("local", False),
    ]


def test_shuffle_is_round_robin_from_a_start_of_its_own() -> None:
    starts = set()
    for seed in range(30):
        choices = list(shuffle().bind(3, Random(seed)).choose_many(range(7)))
        assert choices == [(choices[0] + step) % 3 for step in range(7)]
        starts.add(choices[0])
    assert starts == {0, 1, 2}


def test_broadcast_chooses_all() -> None:
    assert list(broadcast().bind(3, Random(0)).choose_many("abc")) == [ALL, ALL, ALL]


def test_local_chooses_the_senders_own_index() -> None:
    assert list(local().at(2).bind(3, Random(0)).choose_many("ab")) == [2, 2]


def test_local_needs_a_task_of_that_index() -> None:
    with pytest.raises(TopologyError) as caught:
        local().at(3).bind(3, Random(0))
    assert str(caught.value) == (
        "a local edge has no task of the sender's index: own=3 tasks=3: "
        "do both operators have the same number of tasks?"
    )


def test_fields_routes_by_the_stable_hash_of_the_key() -> None:
    choices = fields("user").bind(4, Random(0)).choose_many(EVENTS)
    assert list(choices) == [stable_hash(event["user"]) % 4 for event in EVENTS]
    assert set(choices) == {0, 1, 2, 3}


def test_fields_sends_keys_that_compare_equal_to_one_task() -> None:
    chooser = fields(lambda value: value).bind(7, Random(0))
    assert len({chooser.choose_many([key])[0] for key in (1, 1.0, True)}) == 1


def test_fields_gives_the_same_choices_after_its_cache_was_full() -> None:
    values = range(CACHE_LIMIT + 10)
    chooser = fields(lambda value: value).bind(5, Random(0))
    expected = [stable_hash(value) % 5 for value in values]
    assert list(chooser.choose_many(values)) == expected
    assert list(chooser.choose_many(values)) == expected


def test_fields_remembers_a_bounded_number_of_keys() -> None:
    chooser: Any = fields(lambda value: value).bind(5, Random(0))
    chooser.choose_many(range(CACHE_LIMIT))
    assert len(chooser._task_of.__self__) == CACHE_LIMIT
    chooser.choose_many([-1])
    assert len(chooser._task_of.__self__) == 1


def test_fields_without_a_key() -> None:
    with pytest.raises(TopologyError) as caught:
        fields()
    assert str(caught.value) == (
        "a grouping needs a key and has none: grouping=fields: did you mean fields(lambda value: …)?"
    )


@pytest.mark.parametrize("key", [1.5, True, ["user"], b"user"])
def test_fields_with_a_key_of_no_use(key: Any) -> None:
    with pytest.raises(TopologyError) as caught:
        fields(key)
    assert str(caught.value) == (
        "a grouping's key is neither a function nor the name or position of an item: "
        f"grouping=fields key={key!r}: did you mean fields(lambda value: …)?"
    )


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("user", {"usr": 1}, "key='user' tuple={'usr': 1}"),
        (2, (1, 2), "key=2 tuple=(1, 2)"),
        ("user", 7, "key='user' tuple=7"),
    ],
)
def test_a_tuple_without_the_key_is_named(key: Any, value: Any, text: str) -> None:
    good = {"user": 1, 2: 1}
    with pytest.raises(LookupError) as caught:
        fields(key).bind(2, Random(0)).choose_many([good, value, good])
    assert str(caught.value) == (
        f"a tuple has no such key: grouping=fields {text}: is the key spelled as in the tuple?"
    )


def test_an_unhashable_key_is_explained() -> None:
    with pytest.raises(TypeError) as caught:
        fields("tags").bind(2, Random(0)).choose_many([{"tags": "a"}, {"tags": ["a", "b"]}])
    assert str(caught.value) == (
        "a key of this type cannot be routed: type=list key=['a', 'b']: "
        "could the key function return a str, a number, bytes or a tuple of these?"
    )


def test_a_hashable_key_of_an_unknown_type_is_explained() -> None:
    with pytest.raises(TypeError, match="a key of this type cannot be routed: type=range key=range"):
        fields(range).bind(2, Random(0)).choose_many([3])


def test_an_error_of_the_key_function_is_passed_on_with_the_tuple() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        fields(lambda value: 1 // value).bind(2, Random(0)).choose_many([1, 0])
    assert caught.value.__notes__ == ["the key function of grouping=fields raised: tuple=0"]
