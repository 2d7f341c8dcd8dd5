"""A queue that several tasks of one operator draw from: whoever is free takes what has waited longest.

Each task has a *tap*. What a sender meant for a task goes in through that task's tap, so that its halves of load-aware
groupings can be told; what a task runs it draws from its own, whomever it was meant for.

A bundle of many tuples that one task took whole would wait behind itself while others are idle. So a task draws a
portion, as much as takes about ``PORTION_NS``, and what is left of the bundle stays in front. The portion gets a
random ack id, and the rest keeps the bundle's own, exclusive-or that one: whoever runs which part, the ids of all
parts together are what the ledger waits for.

Tasks come and go, each in its own time. One that goes takes back what was meant for it, and leaves the rest.

Behind it there may be a queue of the whole machine, which the tasks of other workers draw from too. What lies there
is drawn when nothing is left here, a record at a time: what is taken early would wait behind a task again, and die
with its worker.
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
"""The type of the tasks that draw. A queue only tells them apart."""

PORTION_NS = 100 * MICROSECOND_NS
"""What a task draws at once, in time: about what it takes to wake another, for which more could be left."""

SMOOTHING = 0.1  # of how long a tuple takes

Entry = tuple[TaskT, int, Any]
"""(the task it was meant for, when it came, bundle)"""


class Supply(Protocol):
    """A queue that others draw from too, and where one cannot look without taking."""

    def __bool__(self) -> bool:
        """Whether it is worth asking: False if it was empty, and nobody has said since that it is not."""
        ...

    def take(self, most: int) -> tuple[int, Sequence[Any]]:
        """When it was put there, and bundles; none if there are none. Whoever asks runs so many tuples at once."""
        ...

    def pass_on(self) -> None:
        """Have another look into it, in the place of one who was told of something and does something else."""
        ...


class SharedQueue(Generic[TaskT]):
    """First in, first out.

    Law: each tuple that was put is drawn once, or taken back once, and the exclusive or of the ack ids of all that came
    out of a bundle is the bundle's.
    """

    def __init__(self, rng: Random, clock: Clock, guard: AbstractContextManager[Any]) -> None:
        self._entries: deque[Entry[TaskT]] = deque()
        self._new_id = rng.getrandbits
        self._clock = clock
        self._guard = guard  # held by who draws
        self.tasks: list[TaskT] = []  # that draw
        self.supply: Supply | None = None

    def __len__(self) -> int:
        """In bundles, without what its supply has."""
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries or self.supply)

    def put(self, task: TaskT, bundles: Iterable[Any]) -> None:
        now_ns = self._clock()
        self._entries.extend([(task, now_ns, bundle) for bundle in bundles])

    def draw(self, most: int) -> Entry[TaskT]:
        """The first tuples in line, of one bundle, and no more than so many. Raises IndexError if there are none."""
        with self._guard:
            supply = self.supply  # which another thread may take away
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
            self._entries[0] = (task, came_ns, rest)  # in place: whoever finds the queue empty goes to sleep
            return task, came_ns, first

    def tap(self, task: TaskT) -> Tap[TaskT]:
        """Have this task draw too."""
        with self._guard:
            self.tasks.append(task)
        return Tap(self, task)

    def leave(self, task: TaskT) -> None:
        """It draws no more."""
        with self._guard:
            self.tasks.remove(task)

    def take_back(self, task: TaskT) -> list[Any]:
        """All that was meant for this task and nobody has drawn."""
        mine: list[Any] = []
        position = 0
        with self._guard:
            for _ in range(len(self._entries)):  # what is put meanwhile goes to the end
                chosen, _, bundle = self._entries[position]
                if chosen is task:
                    mine.append(bundle)
                    del self._entries[position]
                else:
                    position += 1
        return mine


class Tap(Generic[TaskT]):
    """One task's end of a shared queue, in place of a queue of its own. Any thread may put; its task alone draws."""

    __slots__ = ("_each_ns", "_queue", "_task", "chosen", "portion", "received_ns")

    def __init__(self, queue: SharedQueue[TaskT], task: TaskT) -> None:
        self._queue = queue
        self._task = task
        self._each_ns = 0.0
        self.portion = 1  # tuples to draw at once
        self.chosen = task  # whom what was drawn last was meant for
        self.received_ns = 0  # when that came

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
        """Tuples have been run one after the other, and took so long together."""
        each_ns = duration_ns / tuples
        self._each_ns += (each_ns - self._each_ns) * (SMOOTHING if self._each_ns else 1)
        self.portion = max(1, int(PORTION_NS / max(1.0, self._each_ns)))


def portions(bundles: Iterable[Any], most: int, new_id: Callable[[int], int]) -> list[list[Any]]:
    """The same bundles in lists of no more than so many tuples each, divided where they must be."""
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
