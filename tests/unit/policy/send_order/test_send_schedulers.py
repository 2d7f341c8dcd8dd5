"""Each send scheduler keeps the law and does what its name says; ``check_scheduler`` finds those that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import cloudpickle
import pytest

from tailrace.errors import OptionError
from tailrace.policy.send_order.api import NEVER_NS, NOTHING, SendScheduler, Waiting
from tailrace.policy.send_order.by_name import named_send
from tailrace.policy.send_order.fifo import fifo
from tailrace.policy.send_order.largest_backlog import lbf, lbf_work
from tailrace.policy.send_order.round_robin import round_robin
from tailrace.testing import check_scheduler

MS = 1_000_000
ALL: list[SendScheduler] = [
    lbf(),
    lbf(interval_ms=20),
    lbf_work(),
    lbf_work(3),
    round_robin(),
    round_robin(skip_empty=False),
    fifo(),
]


def waiting(*queues: tuple[int, int, int]) -> Waiting:
    """Of (tuples, work_ns, since_ns) a queue."""
    made = Waiting(len(queues))
    for index, (tuples, work_ns, since_ns) in enumerate(queues):
        made.tuples[index], made.work_ns[index], made.since_ns[index] = tuples, work_ns, since_ns
    made.validate()
    return made


EMPTY = (0, 0, NEVER_NS)


@pytest.mark.parametrize("scheduler", ALL, ids=lambda scheduler: scheduler.name)
def test_the_law_of_send_schedulers(scheduler: SendScheduler) -> None:
    check_scheduler(scheduler)


@pytest.mark.parametrize("scheduler", ALL, ids=lambda scheduler: scheduler.name)
def test_a_scheduler_is_a_value(scheduler: Any) -> None:
    assert cloudpickle.loads(cloudpickle.dumps(scheduler)) == scheduler
    with pytest.raises(AttributeError):
        scheduler.age_floor_ns = 3


def test_names_and_what_they_promise() -> None:
    assert [(s.name, s.work_conserving, s.age_floor_ns) for s in ALL] == [
        ("lbf", True, None),
        ("lbf", False, None),
        ("lbf_work", True, 50 * MS),
        ("lbf_work", True, 3 * MS),
        ("round_robin", True, None),
        ("round_robin_paper", False, None),
        ("fifo", True, 0),
    ]


def test_lbf_picks_the_most_tuples_whatever_they_cost_and_however_old_they_are() -> None:
    queues = waiting((2, 100, 1), (3, 10, 90), (1, 900, 2))
    assert lbf().bind(3, Random(0)).pick(queues, 10**12) == 1


def test_lbf_lets_equal_queues_take_turns() -> None:
    picker = lbf().bind(3, Random(0))
    queues = waiting((2, 0, 1), (2, 0, 2), (2, 0, 3))
    picks = [picker.pick(queues, 9) for _ in range(6)]
    assert picks == [(picks[0] + turn) % 3 for turn in range(6)]


def test_between_ticks_only_the_queue_with_the_signal_sends() -> None:
    """The paper's mechanism: who has the signal and runs empty wastes the rest of the interval."""
    picker = lbf(interval_ms=10).bind(3, Random(0))
    assert picker.pick(waiting((2, 0, 1), (3, 0, 1), EMPTY), 30 * MS) == 1
    assert picker.pick(waiting((2, 0, 1), (1, 0, 1), (9, 0, 1)), 34 * MS) == 1
    assert picker.pick(waiting((2, 0, 1), EMPTY, (9, 0, 1)), 39 * MS) == NOTHING
    assert picker.pick(waiting((2, 0, 1), EMPTY, (9, 0, 1)), 40 * MS) == 2


@pytest.mark.parametrize("interval_ms", [0, 0.5, -3, 10_000, float("nan"), float("inf"), True, "50"])
def test_an_interval_that_is_none(interval_ms: float) -> None:
    with pytest.raises(OptionError) as caught:
        lbf(interval_ms)
    assert str(caught.value) == (
        f"a scheduling interval is a number of milliseconds, from 1 to below 10000: interval_ms={interval_ms!r}: "
        "did you mean lbf(), which decides at every turn?"
    )


def test_lbf_work_picks_the_most_work_until_a_head_is_too_old() -> None:
    queues = waiting((9, 100, 5 * MS), (1, 900, 6 * MS), (1, 1, 4 * MS), EMPTY)
    picker = lbf_work(age_floor_ms=10).bind(4, Random(0))
    assert picker.pick(queues, 14 * MS - 1) == 1
    assert picker.pick(queues, 14 * MS) == 2


def test_in_an_overload_a_head_is_too_old_only_after_all_that_waits_could_have_been_sent_twice() -> None:
    queues = waiting((9, 20 * MS, 5 * MS), (1, 6 * MS, 6 * MS), (1, 4 * MS, 4 * MS), EMPTY)
    picker = lbf_work(age_floor_ms=10).bind(4, Random(0))
    assert picker.pick(queues, 64 * MS - 1) == 0
    assert picker.pick(queues, 64 * MS) == 2
    assert lbf_work(age_floor_ms=10, age_drains=0).bind(4, Random(0)).pick(queues, 14 * MS) == 2


@pytest.mark.parametrize("age_drains", [-1.0, float("inf"), float("nan"), None])
def test_a_number_of_drains_that_is_none(age_drains: float) -> None:
    with pytest.raises(OptionError) as refusal:
        lbf_work(age_drains=age_drains)
    assert str(refusal.value) == (
        f"not how often all that waits could be sent: age_drains={age_drains!r}: did you mean 2, or 0?"
    )


def test_lbf_work_counts_tuples_where_no_cost_is_known() -> None:
    queues = waiting((1, 0, 5), (2, 0, 6), EMPTY)
    assert lbf_work().bind(3, Random(0)).pick(queues, 7) == 1


def test_the_papers_round_robin_begins_with_the_first_and_visits_empty_queues() -> None:
    for seed in range(5):
        picker = round_robin(skip_empty=False).bind(3, Random(seed))
        queues = waiting(EMPTY, EMPTY, (5, 0, 1))
        assert [picker.pick(queues, 9) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_round_robin_passes_over_empty_queues_and_starts_anywhere() -> None:
    starts = set()
    for seed in range(30):
        picker = round_robin().bind(4, Random(seed))
        queues = waiting((1, 0, 1), EMPTY, (5, 0, 1), (1, 0, 1))
        picks = [picker.pick(queues, 9) for _ in range(4)]
        assert picks in ([0, 2, 3, 0], [2, 3, 0, 2], [3, 0, 2, 3])
        starts.add(picks[0])
    assert starts == {0, 2, 3}


def test_fifo_picks_the_oldest_head() -> None:
    assert fifo().bind(3, Random(0)).pick(waiting((1, 0, 7), EMPTY, (1, 0, 6)), 9) == 2


@pytest.mark.parametrize("scheduler", [s for s in ALL if s.work_conserving], ids=lambda scheduler: scheduler.name)
def test_nothing_waits_nothing_is_picked(scheduler: SendScheduler) -> None:
    assert scheduler.bind(2, Random(0)).pick(Waiting(2), 10**15) == NOTHING


def test_schedulers_by_name() -> None:
    named = {
        "lbf": lbf(),
        "lbf=20": lbf(20),
        "lbf_work=250": lbf_work(250),
        "round_robin": round_robin(),
        "fifo": fifo(),
    }
    assert {text: named_send(text) for text in named} == named


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "largest",
            "unknown send scheduler: send=largest: did you mean one of lbf, lbf_work, round_robin, fifo, lbf=NUMBER, "
            "lbf_work=NUMBER?",
        ),
        ("fifo=3", "unknown send scheduler: send=fifo=3: did you mean"),
        ("lbf=soon", "a send scheduler needs a number: send=lbf=soon: did you mean lbf=50?"),
        ("lbf=0", "a scheduling interval is a number of milliseconds"),
    ],
)
def test_names_that_are_none(text: str, why: str) -> None:
    with pytest.raises(OptionError) as caught:
        named_send(text)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize("age_floor_ms", [0, -1.0, float("nan")])
def test_an_age_floor_of_nothing(age_floor_ms: float) -> None:
    with pytest.raises(OptionError) as caught:
        lbf_work(age_floor_ms)
    assert str(caught.value) == (
        f"an age floor must be a positive number of milliseconds: age_floor_ms={age_floor_ms!r}: "
        "did you mean fifo(), where age alone decides?"
    )


@pytest.mark.parametrize(
    ("queue", "fault"),
    [
        ((-1, 0, 5), "a queue holds less than nothing: queue=0 tuples=-1 work_ns=0 since_ns=5"),
        ((0, 3, NEVER_NS), f"an empty queue holds work: queue=0 tuples=0 work_ns=3 since_ns={NEVER_NS}"),
        ((0, 0, 5), "a queue without tuples has a head, or the reverse: queue=0 tuples=0 work_ns=0 since_ns=5"),
        ((1, 0, NEVER_NS), "a queue without tuples has a head, or the reverse: queue=0 tuples=1"),
    ],
)
def test_what_waits_is_validated(queue: tuple[int, int, int], fault: str) -> None:
    with pytest.raises(AssertionError) as caught:
        waiting(queue)
    assert str(caught.value).startswith(fault)


# -- check_scheduler finds what it is there to find

Pick = Callable[[Waiting, int], int]


@dataclass
class _Picker:
    pick: Pick


@dataclass(frozen=True)
class _Broken:
    make: Callable[[int, Random], Pick]
    work_conserving: bool = False
    age_floor_ns: int | None = None
    age_drains: float = 0.0
    interval_ns: int | None = None
    name: str = "broken"

    def bind(self, queues: int, rng: Random) -> _Picker:
        return _Picker(self.make(queues, rng))


@dataclass
class _Sharing:
    """Round robin whose turn belongs to the scheduler, so that its pickers disturb each other."""

    name: str = "sharing"
    work_conserving: bool = False
    age_floor_ns: int | None = None
    age_drains: float = 0.0
    interval_ns: int | None = None
    turn: list[int] = field(default_factory=lambda: [0])

    def bind(self, queues: int, rng: Random) -> _Picker:
        self.turn[0] = 0

        def pick(waiting: Waiting, now_ns: int) -> int:
            self.turn[0] += 1
            return self.turn[0] % queues

        return _Picker(pick)


def _meddling(queues: int, rng: Random) -> Pick:
    def pick(waiting: Waiting, now_ns: int) -> int:
        waiting.work_ns[0] += 1
        return 0

    return pick


def _most_or_first(queues: int, rng: Random) -> Pick:
    return lambda waiting, now_ns: waiting.tuples.index(max(waiting.tuples))


def _by_builtin_hash(queues: int, rng: Random) -> Pick:
    return lambda waiting, now_ns: hash(str(waiting.tuples)) % queues


@pytest.mark.parametrize(
    ("scheduler", "law"),
    [
        (_Broken(lambda queues, rng: lambda waiting, now_ns: queues), "a pick is NOTHING or lies in range(queues)"),
        (_Broken(lambda queues, rng: lambda waiting, now_ns: -2), "a pick is NOTHING or lies in range(queues)"),
        (_Broken(lambda queues, rng: lambda waiting, now_ns: 0.0), "a pick is NOTHING or lies in range(queues)"),
        (_Broken(_meddling), "a pick changes nothing in what waits"),
        (_Broken(_most_or_first, work_conserving=True), "a work-conserving pick is NOTHING where nothing waits"),
        (
            _Broken(lambda queues, rng: lambda waiting, now_ns: NOTHING, work_conserving=True),
            "a work-conserving pick holds something if any queue does",
        ),
        (
            _Broken(lambda queues, rng: lambda waiting, now_ns: 0 if any(waiting.tuples) else NOTHING, True),
            "a work-conserving pick holds something if any queue does",
        ),
        (
            _Broken(_most_or_first, age_floor_ns=5 * MS),
            "the oldest head goes first once it is too old",
        ),
        (
            _Broken(_most_or_first, interval_ns=50 * MS),
            "between ticks a pick is the same queue, or NOTHING",
        ),
        (_Sharing(), "equal seeds and equal queues give equal picks"),
        (_Broken(_by_builtin_hash), "equal picks in any process"),
    ],
)
def test_a_broken_scheduler_is_found(scheduler: Any, law: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_scheduler(scheduler)
    assert str(caught.value).startswith(f"scheduler breaks its law: {law}: scheduler={scheduler.name} queues=")


def test_nothing_to_check_is_refused() -> None:
    with pytest.raises(AssertionError, match="nothing to check: queues, turns and seeds need at least one each"):
        check_scheduler(lbf(), turns=0)
