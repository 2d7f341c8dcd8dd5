"""Online shuffle grouping (Rivetti et al., Middleware 2016): the least loaded task by estimated execution time.

Decides by sums of estimated execution times. Each task sketches how long tuples take, by content, and sends the sketch
when it is stable. The sender adds up what it has assigned to each task by these estimates and picks the task with the
smallest sum. Estimates err, so after every new sketch it asks all tasks, with the next tuple to each, by how much its
sum is off. Laws: those of ``FeedbackChooser`` and ``Receiver``.

Three options depart from the paper's text. ``idle_counts`` and ``resync`` are in the code that its authors published
(github.com/rivetti/osg_storm) and on by default; ``pooled`` is our own. By the text alone OSG is slower than round
robin wherever tasks have time to spare, because its sums ignore idle time: a task that was once given more has long
since done it, and is still avoided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, NamedTuple

from tailrace.errors import OptionError, shorten
from tailrace.policy.groupings.feedback import FeedbackChooser, Message, Receiver
from tailrace.policy.groupings.load.cost_totals import CostTotals
from tailrace.policy.groupings.load.sampling import some_of
from tailrace.policy.groupings.load.sketch import Cells, CountMinPair, Estimates, Shape
from tailrace.policy.hashing import stable_hash
from tailrace.policy.keys import Key, Remembered, checked_key, explain_key, key_function
from tailrace.policy.numbers import is_number, is_whole

MAX_SAMPLES = 8
"""Most tuples that are sketched of those reported at once, but at least one of each sender. There are more only where
calls are so short that sketching each would cost a good part of them."""


class Matrices(NamedTuple):
    """From a task: its stable sketch."""

    content: Cells


class Sync(NamedTuple):
    """On a tuple: what the sender assumes that the task has executed, up to and including this tuple."""

    epoch: int
    cumulated_ns: float


class Reply(NamedTuple):
    """From a task: what the sender must add to its sum, and which share of the time on its own clock in addition.

    Clocks of different machines differ, so the sender adds the time.
    """

    epoch: int
    delta_ns: float
    time_share: float = 0.0


class SchedulerState(Enum):
    """States of the paper's scheduler S, in its words."""

    ROUND_ROBIN = "ROUND_ROBIN"
    SEND_ALL = "SEND_ALL"
    WAIT_ALL = "WAIT_ALL"
    RUN = "RUN"


class OsgChooser(FeedbackChooser):
    """The paper's scheduler S."""

    estimated: CostTotals

    def __init__(self, tasks: int, key: Key, shape: Shape, pooled: bool, resync_after: int, turn: int) -> None:
        super().__init__()
        self._pooled = pooled
        self._resync_after = resync_after
        self._since_sync = 0
        self._contents: list[Cells | None] = [None] * tasks
        self.state = SchedulerState.ROUND_ROBIN
        self.epoch = 0
        self._tasks = tasks
        self._key = key
        self._key_of = key_function(key)
        self._rows = shape.rows
        self._cells_of = Remembered(lambda found: shape.cells_of(stable_hash(found)))
        self._cumulated_ns = [0.0] * tasks
        self._estimates: list[Estimates | None] = [None] * tasks
        self._turn = turn
        self._deltas: dict[int, float] = {}
        self.estimated = CostTotals()

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        try:
            items = [self._cells_of[self._key_of(value)] for value in values]
        except BaseException as error:
            explain_key("osg", self._key, values, error)
            raise
        return [self._choose(position, cells) for position, cells in enumerate(items)]

    def _choose(self, position: int, cells: tuple[int, ...]) -> int:
        cumulated = self._cumulated_ns
        if self.state is SchedulerState.ROUND_ROBIN:
            task = self._turn
            self._turn = (task + 1) % self._tasks
            return task
        if self._resync_after and self.state is SchedulerState.RUN:
            self._since_sync += 1
            if self._since_sync >= self._resync_after:
                self._send_all()
        if self.state is SchedulerState.SEND_ALL:
            task = self._turn
            self._turn += 1
        else:
            task = cumulated.index(min(cumulated))
        estimates = self._estimates[task]
        assert estimates is not None, "only ROUND_ROBIN works without estimates"
        cost_ns = estimates.of(cells)
        cumulated[task] += cost_ns
        self.estimated.add(cost_ns)
        if self.state is SchedulerState.SEND_ALL:
            self.attached.append((position, Sync(self.epoch, cumulated[task])))
            if self._turn == self._tasks:
                self.state = SchedulerState.WAIT_ALL
        return task

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        if isinstance(message, Matrices):
            self._learn(task, message.content)
            if self.state is not SchedulerState.ROUND_ROBIN or None not in self._estimates:
                self._send_all()
        elif isinstance(message, Reply) and message.epoch == self.epoch:
            self._deltas[task] = message.delta_ns + message.time_share * now_ns
            if self.state is SchedulerState.WAIT_ALL and len(self._deltas) == self._tasks:
                self._synchronize()
        return ()

    def _learn(self, task: int, content: Cells) -> None:
        if not self._pooled:
            self._estimates[task] = Estimates(content, self._rows)
            return
        self._contents[task] = content
        known = [content for content in self._contents if content is not None]
        if len(known) == self._tasks:
            self._estimates = [Estimates(Cells.total(known), self._rows)] * self._tasks

    def _send_all(self) -> None:
        self.state = SchedulerState.SEND_ALL
        self.epoch += 1
        self._turn = 0
        self._deltas.clear()

    def _synchronize(self) -> None:
        for task, delta_ns in self._deltas.items():
            self._cumulated_ns[task] += delta_ns
        self._since_sync = 0
        self.state = SchedulerState.RUN


class OsgReceiver(Receiver):
    """The paper's operator instance: START while it has no snapshot, STABILIZING from then until it sends."""

    arrivals_can_wait = True
    hears_arrivals = False

    def __init__(
        self, senders: int, key: Key, shape: Shape, window: int, tolerance: float, idle_counts: bool, rng: Random
    ) -> None:
        super().__init__()
        self._idle_counts = idle_counts
        self._rng = rng
        self._reported_ns = 0  # when tuples were last reported
        self._samples = 0  # tuples sketched at that time
        self._senders = senders
        self._key_of = key_function(key)
        self._shape = shape
        self._window = window
        self._tolerance = tolerance
        self._cells_of = Remembered(lambda found: shape.cells_of(stable_hash(found)))
        self._pair = CountMinPair(shape)
        self._snapshot: list[float] | None = None
        self._since_check = 0
        self._cumulated_ns = [0] * senders

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        self._cumulated_ns[sender] += duration_ns
        self._pair.add(self._cells_of[self._key_of(value)], duration_ns)
        self._reply(sender, attached)
        self._count()

    def executed_many(
        self, sender: int, values: Sequence[Any], durations_ns: Sequence[int], queued: int, now_ns: int
    ) -> None:
        self._cumulated_ns[sender] += sum(durations_ns)
        cells_of, key_of = self._cells_of, self._key_of
        if now_ns != self._reported_ns:
            self._reported_ns, self._samples = now_ns, 0
        some = some_of(len(values), max(1, MAX_SAMPLES - self._samples), self._rng)
        self._samples += min(len(values), MAX_SAMPLES)
        for value, duration_ns in zip(values[some], durations_ns[some], strict=True):
            self._pair.add(cells_of[key_of(value)], duration_ns)
            self._count()

    def _count(self) -> None:
        self._since_check += 1
        if self._since_check == self._window:
            self._since_check = 0
            self._check()

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        self._reply(sender, attached)

    def _reply(self, sender: int, attached: Message | None) -> None:
        if isinstance(attached, Sync):
            self.outbox.append((sender, Reply(attached.epoch, *self._done(sender, attached.cumulated_ns))))

    def _done(self, sender: int, cumulated_ns: float) -> tuple[float, float]:
        """The work to be added by a sender, for its own tuples: if each added that of all, they would overshoot."""
        if self._idle_counts:
            return -cumulated_ns, 1 / self._senders
        return self._cumulated_ns[sender] - cumulated_ns, 0.0

    def _check(self) -> None:
        means = self._pair.means()
        if self._snapshot is None or _relative_error(self._snapshot, means) > self._tolerance:
            self._snapshot = means
            return
        matrices = Matrices(self._pair.content())
        self.outbox.extend((sender, matrices) for sender in range(self._senders))
        self._pair = CountMinPair(self._shape)
        self._snapshot = None


def _relative_error(snapshot: list[float], means: list[float]) -> float:
    """The paper's eta."""
    whole = sum(snapshot)
    return sum(abs(a - b) for a, b in zip(snapshot, means, strict=True)) / whole if whole else 0.0


@dataclass(frozen=True)
class Osg:
    """Each tuple goes where the least estimated execution time was sent. ``osg()`` makes one."""

    name = "osg"
    keyed = False

    key: Key
    window: int = 1024
    tolerance: float = 0.05
    epsilon: float = 0.05
    delta: float = 0.1
    seed: int = 0  # of the hash functions, which senders and tasks must share
    pooled: bool = False
    idle_counts: bool = True
    resync: bool = True

    def bind(self, tasks: int, rng: Random) -> OsgChooser:
        resync_after = self.window * tasks if self.resync else 0
        return OsgChooser(tasks, self.key, self._shape(), self.pooled, resync_after, rng.randrange(tasks))

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> OsgReceiver:
        return OsgReceiver(senders, self.key, self._shape(), self.window, self.tolerance, self.idle_counts, rng)

    def _shape(self) -> Shape:
        return Shape(self.epsilon, self.delta, self.seed)


def osg(
    key: Key | None = None,
    *,
    window: int = 1024,
    tolerance: float = 0.05,
    epsilon: float = 0.05,
    delta: float = 0.1,
    seed: int = 0,
    pooled: bool = False,
    idle_counts: bool = True,
    resync: bool = True,
) -> Osg:
    """Send each tuple to the task that will be done first, by sketches of costs.

    This is online shuffle grouping, Rivetti et al. (2016).

    Args:
        key: what a tuple's cost depends on, written as for ``fields``.
        window: tuples after which a task looks whether its sketch has settled: the paper's *N*.
        tolerance: the relative error below which a sketch counts as settled: the paper's *mu*.
        epsilon: the precision of the sketches.
        delta: the probability that a sketch is less precise.
        seed: chooses the sketches' hash functions.
        pooled: whether to estimate from the sum of all sketches, which is right where tasks are equally fast.
        idle_counts: whether to compare the moments at which tasks will be done, so that time in which a task is idle
            counts. This is in the code that the authors published, and not in the paper's text.
        resync: whether to ask all tasks again after ``window`` tuples to each, even without a new sketch. As
            ``idle_counts``, this is in the published code only.

    Example:
        >>> quotes = tr.Topology("quotes").source("quotes", tr.from_iterable([{"items": 3}, {"items": 800}]))
        >>> quotes.map("price", str, tasks=4, grouping=tr.osg("items"))
        Stream(price.main)
    """
    if not is_whole(window) or window < 1 or not is_number(tolerance) or tolerance < 0:
        raise OptionError(
            f"osg needs window >= 1, a whole number, and tolerance >= 0: window={shorten(window)} "
            f"tolerance={shorten(tolerance)}"
        )
    Shape(epsilon, delta, seed)
    return Osg(checked_key("osg", key), window, tolerance, epsilon, delta, seed, pooled, idle_counts, resync)
