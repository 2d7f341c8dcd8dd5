"""A shared queue: several tasks of one operator draw from it, and a task that is free takes what has waited longest.

Each task has a *tap*. Bundles that a sender chose a task for go in through the tap of that task, so that its feedback
receiver can be told of them. A task draws through its own tap, whichever task the bundle was for.

If one task took a bundle of many tuples whole, the last of them would wait while other tasks are idle. A task therefore
draws a *portion* of the bundle, as much as it runs in about ``PORTION_NS``, and the rest stays in front. The parts'
ack ids together are the bundle's (``divided``), so that the ledger gets what it waits for whichever tasks run them.

Tasks join and leave at any time. A task that leaves takes back the bundles that were for it, and leaves the others.

A shared queue may have a *supply* behind it: the queue of the whole machine, which tasks of other workers draw from
too. It is drawn from when the shared queue is empty, and one record at a time: a record taken early would wait behind a
busy task again, and be lost with its worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from tailrace.clock import MICROSECOND_NS, Clock
from tailrace.core.bundles import VALUES, divided

TaskT = TypeVar("TaskT")
"""The type of the tasks that draw. The queue only compares them."""

PORTION_NS = 100 * MICROSECOND_NS
"""The work that a task draws at once: about as long as it takes to wake another task for the rest."""

SMOOTHING = 0.1
"""The weight of a new measurement in the average duration of a tuple."""

Entry = tuple[TaskT, int, Any]
"""(the task that the sender chose, when the bundle arrived, bundle)"""


class Supply(Protocol):
    """A queue that other workers draw from too. Its length is not known: one can only take from it."""

    def __bool__(self) -> bool:
        """False if it was found empty, and there has been no wake-up since."""
        ...

    def take(self, most: int) -> tuple[int, Sequence[Any]]:
        """(when the record was put there, its bundles), with no bundles if it is empty.

        ``most``: how many tuples the caller runs at once.
        """
        ...

    def pass_on(self) -> None:
        """Wake another task for it: the one that was woken has other work."""
        ...


class SharedQueue(Generic[TaskT]):
    """The input queue of several tasks, first in, first out.

    Law: each tuple that was put in is drawn once or taken back once, and the exclusive or of the ack ids of all parts
    of a bundle is the bundle's.
    """

    def __init__(self, rng: Random, clock: Clock, guard: AbstractContextManager[Any]) -> None:
        self._entries: deque[Entry[TaskT]] = deque()
        self._new_id = rng.getrandbits
        self._clock = clock
        self._guard = guard  # held while drawing
        self.tasks: list[TaskT] = []  # the tasks that draw
        self.supply: Supply | None = None

    def __len__(self) -> int:
        """In bundles, without those of its supply."""
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries or self.supply)

    @property
    def entries(self) -> list[Entry[TaskT]]:
        """The entries that wait in it, in order, without its supply."""
        return list(self._entries)

    def put(self, task: TaskT, bundles: Iterable[Any]) -> None:
        now_ns = self._clock()
        self._entries.extend([(task, now_ns, bundle) for bundle in bundles])

    def draw(self, most: int) -> Entry[TaskT]:
        """The first tuples of the first bundle, at most ``most``. Raises IndexError if the queue is empty."""
        with self._guard:
            supply = self.supply  # another thread may remove it
            if not self._entries:
                if supply is not None:
                    came_ns, bundles = supply.take(most)
                    self._entries.extend([(self.tasks[0], came_ns, bundle) for bundle in bundles])
            elif supply:
                supply.pass_on()
            task, came_ns, bundle = self._entries[0]
            if len(bundle[VALUES]) <= most:
                return self._entries.popleft()
            first, rest = divided(bundle, most, self._new_id(64))
            self._entries[0] = (task, came_ns, rest)  # in place: a task that finds the queue empty goes to sleep
            return task, came_ns, first

    def tap(self, task: TaskT) -> Tap[TaskT]:
        """Let this task draw too."""
        with self._guard:
            self.tasks.append(task)
        return Tap(self, task)

    def leave(self, task: TaskT) -> None:
        """The task draws no more."""
        with self._guard:
            self.tasks.remove(task)

    def take_back(self, task: TaskT) -> list[Any]:
        """The bundles that senders chose this task for and no task has drawn."""
        mine: list[Any] = []
        position = 0
        with self._guard:
            for _ in range(len(self._entries)):  # bundles that are put in meanwhile go to the end
                chosen, _, bundle = self._entries[position]
                if chosen is task:
                    mine.append(bundle)
                    del self._entries[position]
                else:
                    position += 1
        return mine


class Tap(Generic[TaskT]):
    """One task's access to a shared queue, in place of a queue of its own. Any thread may put; only its task draws."""

    __slots__ = ("_each_ns", "_queue", "_task", "chosen", "portion", "received_ns")

    def __init__(self, queue: SharedQueue[TaskT], task: TaskT) -> None:
        self._queue = queue
        self._task = task
        self._each_ns = 0.0
        self.portion = 1  # tuples to draw at once
        self.chosen = task  # the task that the sender of the bundle drawn last had chosen
        self.received_ns = 0  # when that bundle arrived

    def __len__(self) -> int:
        return len(self._queue)

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def sharing(self) -> Sequence[TaskT]:
        """All tasks that draw from this queue."""
        return self._queue.tasks

    def append(self, bundle: Any) -> None:
        self._queue.put(self._task, (bundle,))

    def extend(self, bundles: Iterable[Any]) -> None:
        self._queue.put(self._task, bundles)

    def popleft(self) -> Any:
        self.chosen, self.received_ns, bundle = self._queue.draw(self.portion)
        return bundle

    def take_back(self) -> list[Any]:
        return self._queue.take_back(self._task)

    def leave(self) -> None:
        self._queue.leave(self._task)

    def took(self, tuples: int, duration_ns: int) -> None:
        """The task has run so many tuples in this time. Adjusts the portion."""
        each_ns = duration_ns / tuples
        self._each_ns += (each_ns - self._each_ns) * (SMOOTHING if self._each_ns else 1)
        self.portion = max(1, int(PORTION_NS / max(1.0, self._each_ns)))


def portions(bundles: Iterable[Any], most: int, new_id: Callable[[int], int]) -> list[list[Any]]:
    """Divide bundles into lists of at most ``most`` tuples each. A bundle that does not fit is divided too."""
    found: list[list[Any]] = []
    room = 0
    for bundle in bundles:
        while bundle is not None:
            if not room:
                found.append([])
                room = most
            part, bundle = (bundle, None) if len(bundle[VALUES]) <= room else divided(bundle, room, new_id(64))
            found[-1].append(part)
            room -= len(part[VALUES])
    return found
