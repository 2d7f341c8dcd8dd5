"""Rules about bounded queues, each broken on purpose so that tasks wait for each other: see ``mutations``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from unittest.mock import patch

from broken_protocol import Patch, together

from tailrace.core.tasks.base import Task
from tailrace.sim.faults.bounds import Frame, Gates
from tailrace.sim.faults.process import FEEDBACK


def links_stay_paused() -> Patch:
    return patch.object(Gates, "_resume", lambda self, unit: None)


def room_is_not_looked_for() -> Patch:
    return patch.object(Gates, "_retry", lambda self, task: None)


def full_lanes_hold_nobody_back() -> Patch:
    return patch.object(Gates, "holds_back", lambda self, task: False)


def feedback_behind_bundles() -> Patch:
    return _behind_bundles(_is_feedback)


def held_back_hear_no_feedback() -> Patch:
    return _unread_while_held_back(_is_feedback)


def acks_behind_bundles() -> Patch:
    """Where a task goes on while its acks wait, they are late and no more. Here it waits too."""
    return together(_behind_bundles(_is_ack), _acks_waited_for())


def held_back_take_no_acks() -> Patch:
    """The same."""
    return together(_unread_while_held_back(_is_ack), _acks_waited_for())


def _is_feedback(target: int) -> bool:
    return target >= FEEDBACK


def _is_ack(target: int) -> bool:
    return target < 0


def _acks_waited_for() -> Patch:
    original = Gates.holds_back

    def holds_back(self: Gates, task: Task) -> bool:
        return original(self, task) or any(task.acks.values())

    return patch.object(Gates, "holds_back", holds_back)


def _behind_bundles(kind: Callable[[int], bool]) -> Patch:
    """One connection from worker to worker: what waits there for one task has these wait too."""
    original = Gates.arrive

    def arrive(self: Gates, frame: Frame, unit: int, bundles: bool) -> None:
        for waiting in self._waiting.values() if kind(frame.way[0][3]) else ():
            if any(one.way[0][:2] == frame.way[0][:2] for one in waiting):
                waiting.append(frame)
                return
        original(self, frame, unit, bundles)

    return patch.object(Gates, "arrive", arrive)


def _unread_while_held_back(kind: Callable[[int], bool]) -> Patch:
    arrive, make_room = Gates.arrive, Gates.make_room

    def arrive_later(self: Gates, frame: Frame, unit: int, bundles: bool) -> None:
        task = self._process.tasks.get(unit)
        if kind(frame.way[0][3]) and task is not None and self._process.held_back(task):
            self._waiting.setdefault(-1 - unit, deque()).append(frame)
        else:
            arrive(self, frame, unit, bundles)

    def make_room_and_read(self: Gates, task: Task) -> None:
        make_room(self, task)
        unread = self._waiting.get(-1 - task.number)
        while unread and not self._process.held_back(task):
            arrive(self, unread.popleft(), task.number, False)

    return patch.multiple(Gates, arrive=arrive_later, make_room=make_room_and_read)
