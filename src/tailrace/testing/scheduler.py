"""The law of send schedulers as a function that checks any scheduler.

The law is in ``tailrace.policy.send_order.api``; each ``_check_*`` below is one clause of it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from random import Random

import cloudpickle

from tailrace.errors import shorten
from tailrace.policy.send_order.api import NEVER_NS, NOTHING, Picker, SendScheduler, Waiting

TURN_NS = 1_000_000
COSTS_NS = (0, 10_000, 10_000, 5_000_000)  # unknown, cheap and expensive
BURSTS = (0, 0, 0, 1, 1, 1, 2, 9)
"""Numbers of tuples that arrive between two turns: one and a half on average, so that queues grow."""

LULLS = (0, 0, 0, 1)
"""Numbers of tuples that arrive between two turns of a lull, in which queues become empty."""
LULL_TURNS = 100

_IN_ANOTHER_PROCESS = """
import pickle, sys
from tailrace.testing.scheduler import _pick_everywhere
sys.stdout.buffer.write(pickle.dumps(_pick_everywhere(*pickle.load(sys.stdin.buffer))))
"""

Check = Callable[[Waiting, int, int], None]  # arguments: what waits, the time, and the pick


def check_scheduler(
    scheduler: SendScheduler,
    *,
    queues: Sequence[int] = (1, 2, 3, 8),
    turns: int = 600,
    seeds: Sequence[int] = (0, 1, 2),
) -> None:
    """Raise ``AssertionError`` unless a send scheduler keeps its law. Starts one other Python process.

    Args:
        scheduler: the scheduler.
        queues: the numbers of queues to try.
        turns: how many turns each try has.
        seeds: the seeds to try.

    Example:
        >>> from tailrace.testing import check_scheduler
        >>> check_scheduler(tr.lbf(), queues=[2], turns=50, seeds=[1])
    """
    assert queues and seeds and turns > 0, "nothing to check: queues, turns and seeds need at least one each"
    for count in queues:
        for seed in seeds:
            _check_picks(scheduler, count, seed, turns)
            _check_repeatable(scheduler, count, seed, turns)
    _check_other_process(scheduler, queues, seeds, turns)


class _Queues:
    """Outgoing queues that fill at random and are emptied as the scheduler picks."""

    def __init__(self, queues: int, seed: int) -> None:
        self.waiting = Waiting(queues)
        self.now_ns = TURN_NS
        self._rng = Random(seed)
        self._queues: list[deque[tuple[int, int]]] = [deque() for _ in range(queues)]
        self._favourite = self._rng.randrange(queues)  # gets half of all tuples

    def fill(self, turn: int) -> None:
        rng, queues = self._rng, len(self._queues)
        self.now_ns += TURN_NS
        for _ in range(rng.choice(LULLS if turn // LULL_TURNS % 2 else BURSTS)):
            queue = self._favourite if rng.random() < 0.5 else rng.randrange(queues)
            since_ns = self.now_ns - rng.randrange(TURN_NS)
            held = self._queues[queue]
            if held:
                since_ns = max(since_ns, held[-1][0])
            held.append((since_ns, rng.choice(COSTS_NS)))
            self._tell(queue)

    def send(self, queue: int) -> None:
        if queue != NOTHING and self._queues[queue]:
            self._queues[queue].popleft()
            self._tell(queue)

    def _tell(self, queue: int) -> None:
        held = self._queues[queue]
        self.waiting.tuples[queue] = len(held)
        self.waiting.work_ns[queue] = sum(cost_ns for _, cost_ns in held)
        self.waiting.since_ns[queue] = held[0][0] if held else NEVER_NS


def _picks(picker: Picker, queues: int, seed: int, turns: int, check: Check | None = None) -> list[int]:
    made_up = _Queues(queues, seed)
    picks = []
    for turn in range(turns):
        made_up.fill(turn)
        picked = picker.pick(made_up.waiting, made_up.now_ns)
        if check is not None:
            check(made_up.waiting, made_up.now_ns, picked)
        made_up.send(picked)
        picks.append(picked)
    return picks


def _pick_everywhere(
    scheduler: SendScheduler, queues: Sequence[int], seeds: Sequence[int], turns: int
) -> dict[tuple[int, int], list[int]]:
    return {
        (count, seed): _picks(scheduler.bind(count, Random(seed)), count, seed, turns)
        for count in queues
        for seed in seeds
    }


def _broken(scheduler: SendScheduler, law: str, **facts: object) -> AssertionError:
    details = " ".join(f"{name}={fact}" for name, fact in facts.items())
    return AssertionError(f"scheduler breaks its law: {law}: scheduler={scheduler.name} {details}")


class _Watched:
    """Wraps a picker and raises if it changes ``waiting``."""

    def __init__(self, scheduler: SendScheduler, picker: Picker, seed: int) -> None:
        self._scheduler = scheduler
        self._picker = picker
        self._seed = seed

    def pick(self, waiting: Waiting, now_ns: int) -> int:
        before = (list(waiting.tuples), list(waiting.work_ns), list(waiting.since_ns))
        picked = self._picker.pick(waiting, now_ns)
        if (waiting.tuples, waiting.work_ns, waiting.since_ns) != before:
            law = "a pick changes nothing in what waits"
            raise _broken(self._scheduler, law, queues=len(before[0]), seed=self._seed)
        return picked


def _check_picks(scheduler: SendScheduler, queues: int, seed: int, turns: int) -> None:
    signalled: dict[int, int] = {}  # by tick

    def check(waiting: Waiting, now_ns: int, picked: int) -> None:
        facts = {"queues": queues, "seed": seed, "tuples": waiting.tuples, "picked": shorten(picked)}
        if not isinstance(picked, int) or not (picked == NOTHING or 0 <= picked < queues):
            raise _broken(scheduler, "a pick is NOTHING or lies in range(queues)", **facts)
        if scheduler.work_conserving:
            _check_conserving(scheduler, waiting, picked, facts)
        if scheduler.age_floor_ns is not None:
            _check_age(scheduler, waiting, now_ns, picked, facts)
        if scheduler.interval_ns is not None and picked != NOTHING:
            first = signalled.setdefault(now_ns // scheduler.interval_ns, picked)
            if first != picked:
                raise _broken(scheduler, "between ticks a pick is the same queue, or NOTHING", **facts)

    picker = _Watched(scheduler, scheduler.bind(queues, Random(seed)), seed)
    _picks(picker, queues, seed, turns, check)


def _check_conserving(scheduler: SendScheduler, waiting: Waiting, picked: int, facts: dict[str, object]) -> None:
    if not any(waiting.tuples):
        if picked != NOTHING:
            raise _broken(scheduler, "a work-conserving pick is NOTHING where nothing waits", **facts)
    elif picked == NOTHING or waiting.tuples[picked] == 0:
        raise _broken(scheduler, "a work-conserving pick holds something if any queue does", **facts)


def _check_age(scheduler: SendScheduler, waiting: Waiting, now_ns: int, picked: int, facts: dict[str, object]) -> None:
    oldest_ns, drain_ns = min(waiting.since_ns), sum(waiting.work_ns)
    oldest_may_be_ns = max(scheduler.age_floor_ns or 0, scheduler.age_drains * drain_ns)
    if now_ns - oldest_ns >= oldest_may_be_ns and waiting.since_ns[picked] != oldest_ns:
        law = "the oldest head goes first once it is too old"
        raise _broken(scheduler, law, **facts, waited_ns=now_ns - oldest_ns, drain_ns=drain_ns)


def _check_same(scheduler: SendScheduler, law: str, a: list[int], b: list[int], **facts: object) -> None:
    for turn, (left, right) in enumerate(zip(a, b, strict=True)):
        if left != right:
            raise _broken(scheduler, law, **facts, turn=turn, expected=left, given=right)


def _check_repeatable(scheduler: SendScheduler, queues: int, seed: int, turns: int) -> None:
    """Pickers that work at the same time must not share state through the scheduler."""
    first = scheduler.bind(queues, Random(seed))
    expected = _picks(first, queues, seed, turns)
    one, two = scheduler.bind(queues, Random(seed)), scheduler.bind(queues, Random(seed))
    given: list[int] = []

    def pick_two(waiting: Waiting, now_ns: int, picked: int) -> None:
        given.append(two.pick(waiting, now_ns))

    law = "equal seeds and equal queues give equal picks"
    _check_same(scheduler, law, expected, _picks(one, queues, seed, turns, pick_two), queues=queues, seed=seed)
    _check_same(scheduler, law, expected, given, queues=queues, seed=seed)


def _check_other_process(scheduler: SendScheduler, queues: Sequence[int], seeds: Sequence[int], turns: int) -> None:
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", _IN_ANOTHER_PROCESS],
        input=cloudpickle.dumps((scheduler, list(queues), list(seeds), turns)),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        timeout=60,
    )
    law = "equal picks in any process"
    if done.returncode != 0:
        raise _broken(scheduler, law, error=done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    there = pickle.loads(done.stdout)
    for (count, seed), here in _pick_everywhere(scheduler, queues, seeds, turns).items():
        _check_same(scheduler, law, here, there[count, seed], queues=count, seed=seed)
