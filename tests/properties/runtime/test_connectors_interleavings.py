"""Zombie, successor and the successor's successor take their steps in any order: rows and entries still agree."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tailrace.connector import CommittingWriter, Entry, SinkContext
from tailrace.errors import Fenced
from tailrace.runtime.connectors import to_jsonl
from tailrace.testing.connectors import Crash, steps


class Actor(threading.Thread):
    """A thread that stands still before each of its steps until it is told to go on."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.act = act
        self.go = threading.Semaphore(0)
        self.stopped = threading.Semaphore(0)
        self.over = False
        self.taken = 0
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        self.go.acquire()
        try:
            self.result = self.act()
        except BaseException as error:
            self.error = error
        self.over = True
        self.stopped.release()

    def step(self, _: str) -> None:
        self.stopped.release()
        self.go.acquire()

    def advance(self) -> None:
        self.taken += 1
        self.go.release()
        assert self.stopped.acquire(timeout=30), "actor does not reach its next step"


def interleave(acts: list[Callable[[], Any]], schedule: Iterator[int]) -> list[Actor]:
    """Run the acts step by step in the order of the schedule, then whatever is left, one after the other."""
    actors = [Actor(act) for act in acts]

    def hook(name: str) -> None:
        current = threading.current_thread()
        if isinstance(current, Actor) and name != "fsync":  # nobody can tell when that happened
            current.step(name)

    with steps(hook):
        for actor in actors:
            actor.start()
        for pick in schedule:
            if not actors[pick].over:
                actors[pick].advance()
        for actor in actors:
            while not actor.over:
                actor.advance()
    return actors


class Scene:
    def __init__(self, directory: Path) -> None:
        self.sink = to_jsonl(directory)
        self.acknowledged: list[int] = []

    def open(self, epoch: int, task: int = 0, tasks: int = 1, first_epoch: int = 0) -> CommittingWriter:
        return self.sink.open(SinkContext("out", task, tasks, epoch, "deadbeef00", lambda *_: None, first_epoch))

    def live(self, writer: CommittingWriter, rows: list[int]) -> None:
        for row in rows:
            writer.write(row)
            writer.commit([Entry("s", row, row)])
            self.acknowledged.append(row)

    def life(self, epoch: int, rows: list[int], **where: int) -> list[Entry]:
        writer = self.open(epoch, **where)
        entries = list(writer.recover({}))
        self.live(writer, rows)
        return entries

    def visible(self) -> list[int]:
        return [json.loads(line) for path in self.sink.path.glob("part-*") for line in path.read_text().splitlines()]

    def check(self, last: Actor) -> None:
        """The highest epoch is not disturbed, and knows of exactly what is visible besides its own rows."""
        assert last.error is None, last.error
        known = [entry.offset for entry in last.result]
        assert Counter(self.visible()) == Counter(set(known) | set(self.acknowledged))
        assert Counter(known) == Counter(set(known))
        assert set(self.acknowledged) - {30} <= set(known), "a commit of a lower epoch succeeded too late"


schedules = st.lists(st.integers(0, 2), max_size=150)
anything = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@anything
@given(schedules, st.booleans())
def test_three_epochs_of_one_task_in_any_order(schedule: list[int], opened: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        scene = Scene(Path(name))
        writer = scene.open(1) if opened else None
        if writer is not None:
            writer.recover({})

        def zombie() -> Any:
            return scene.life(1, [10, 11]) if writer is None else scene.live(writer, [10, 11])

        actors = interleave([zombie, lambda: scene.life(2, [20]), lambda: scene.life(3, [30])], iter(schedule))
        assert all(actor.error is None or isinstance(actor.error, Fenced) for actor in actors), [
            actor.error for actor in actors
        ]
        scene.check(actors[2])


@anything
@given(schedules)
def test_a_task_that_is_no_more_is_fenced_by_the_one_that_inherits_it(schedule: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        scene = Scene(Path(name))
        zombie = scene.open(7, task=2, tasks=4)
        zombie.recover({})
        actors = interleave(
            [lambda: scene.live(zombie, [10, 11]), lambda: scene.life(8, [20]), lambda: scene.life(9, [30])],
            iter(schedule),
        )
        assert all(actor.error is None or isinstance(actor.error, Fenced) for actor in actors), [
            actor.error for actor in actors
        ]
        scene.check(actors[2])


@anything
@given(schedules, st.booleans())
@example([2] * 150, True)
@example([2] * 150, False)
def test_each_task_of_a_new_run_knows_all_that_an_earlier_one_will_show(schedule: list[int], opened: bool) -> None:
    """Whichever of the new tasks recovers first: a row of the one old task may come to either of them."""
    with tempfile.TemporaryDirectory() as name:
        scene = Scene(Path(name))
        writer = scene.open(7) if opened else None
        if writer is not None:
            writer.recover({})

        def zombie() -> Any:
            return scene.life(7, [10, 11]) if writer is None else scene.live(writer, [10, 11])

        new = [partial(scene.life, 8 + task, [20 + task], task=task, tasks=2, first_epoch=8) for task in (0, 1)]
        actors = interleave([zombie, *new], iter(schedule))
        assert actors[0].error is None or isinstance(actors[0].error, Fenced), actors[0].error
        for actor in actors[1:]:
            assert actor.error is None, actor.error
            known = Counter(entry.offset for entry in actor.result)
            assert Counter(row for row in scene.visible() if row < 20) == known - Counter([20, 21])


def half_committed(directory: Path) -> Scene:
    """Epoch 1 has died after its manifest was renamed, and before its data was."""
    scene = Scene(directory)
    writer = scene.open(1)
    writer.recover({})
    renames = []

    def hook(name: str) -> None:
        renames.extend([name] * (name == "rename"))
        if len(renames) == 2:
            raise Crash

    with steps(hook), contextlib.suppress(Crash):
        scene.live(writer, [10])
    assert scene.visible() == []
    return scene


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_two_recoveries_at_once_with_every_two_switches(tmp_path: Path, first: int) -> None:
    """One of them takes i steps, the other j, then the first goes on to its end, then the other."""
    tried = 0
    for i in itertools.count():
        longest = 0
        for j in itertools.count():
            scene = half_committed(tmp_path / f"{i}-{j}")
            acts = [partial(scene.life, 2, [20]), partial(scene.life, 3, [30])]
            actors = interleave(acts, iter([first] * i + [1 - first] * j + [first] * 1000))
            assert actors[0].error is None or isinstance(actors[0].error, Fenced), (i, j, actors[0].error)
            assert 10 in scene.visible(), (i, j)
            scene.check(actors[1])
            tried += 1
            longest = max(longest, actors[first].taken)
            if actors[1 - first].taken < j:
                break
        if longest < i:
            break
    assert tried > 100
