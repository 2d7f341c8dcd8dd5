"""A stage at work: the choosers at its senders, the receivers at its tasks, and the queues in front of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappush
from random import Random
from typing import NamedTuple

from tailrace.policy.groupings.api import ALL, FIRST, HELD, Chooser, Grouping
from tailrace.policy.groupings.baselines.full_knowledge import FullKnowledge
from tailrace.policy.groupings.feedback import FeedbackChooser, Message, Receiver, has_feedback
from tailrace.policy.groupings.local import Local
from tailrace.policy.groupings.shuffle import Shuffle
from tailrace.policy.hashing import stable_hash
from tailrace.policy.hedging.disjoint_halves import DisjointHalves
from tailrace.policy.hedging.least_waiting import LeastWaiting
from tailrace.sim.load.agenda import DELIVER, EMIT, FINISH, TO_SENDER, TO_TASK, Agenda
from tailrace.sim.load.forest import Forest
from tailrace.sim.load.hedging import Hedging
from tailrace.sim.load.models.model import Model, Order, Scope, Stage
from tailrace.sim.load.network import Network
from tailrace.sim.load.node_speed import Pace
from tailrace.sim.load.queues import Fifo, Job, ShortestFirst, TaskQueue
from tailrace.sim.load.report import StageReport
from tailrace.sim.load.roots import Roots

IDLE = -1

ENDLESS = 1_000
"""Messages per tuple after which the two sides of a grouping are taken to exchange messages for ever."""


@dataclass(frozen=True)
class World:
    """Everything that the stages of one simulation share."""

    model: Model
    forest: Forest
    roots: Roots
    agenda: Agenda
    network: Network
    hedging: Hedging | None
    seed: int


class Sender(NamedTuple):
    """A sending task, of an earlier stage or of the source."""

    task: int
    machine: int
    leads: bool = False  # whether it is a source task


class StageAtWork:
    """A stage of a simulation. Each sender has a chooser of its own, so they decide independently."""

    def __init__(self, world: World, position: int, grouping: Grouping, senders: Sequence[Sender]) -> None:
        model, forest, stage = world.model, world.forest, world.model.operators[position]
        self.name, self.tasks = stage.name, stage.tasks
        self.agenda, self.roots, self.hedging = world.agenda, world.roots, world.hedging
        self.cancels = world.hedging is not None and world.hedging.cancels
        self.on_the_way = world.roots.on_the_way
        self.events, self.next = world.agenda.events, world.agenda.next
        self.works_ns, self.again_ns = forest.works_ns, forest.again_ns
        self.values = forest.values
        self.lags_ns = forest.lags_ns
        if isinstance(grouping, FullKnowledge):
            grouping = _informed(grouping, model, stage)
            self.values = forest.works_ns  # only this grouping is shown the exact costs
        self.children, self.stage_of = forest.children, forest.stages
        self.ways: Ways = {}

        rngs = [Random(_seed(world.seed, position, stage, side)) for side in range(len(senders) + self.tasks)]
        self.choosers: list[Chooser] = [
            _seen_by(sender, grouping).bind(self.tasks, rng)
            for sender, rng in zip(senders, rngs[: len(senders)], strict=True)
        ]
        self.feedback: list[FeedbackChooser] | None = None
        self.receivers: list[Receiver] = []
        if has_feedback(grouping):
            self.feedback = self.choosers  # type: ignore[assignment]
            self.receivers = [
                grouping.bind_receiver(task, self.tasks, len(senders), rng)
                for task, rng in enumerate(rngs[len(senders) :])
            ]
        self.least_waiting = [self._least_waiting(sender, grouping) for sender in senders]
        self.disjoint_halves = [self._disjoint_halves(world, position, sender, grouping) for sender in senders]
        self.held: list[deque[tuple[int, int]]] = [deque() for _ in senders]  # (tuple, incarnation)

        nodes = [model.node_of(stage, task) for task in range(self.tasks)]
        self.paces = [Pace(model.nodes[node]) for node in nodes]
        self.queues, self.siblings = _queues(model, stage)
        self.lanes = world.network.lanes([sender.machine for sender in senders], nodes)

        self.began_ns = [IDLE] * self.tasks  # when the current execution of each task began
        self.executed = [0] * self.tasks
        self.busy_ns = [0] * self.tasks
        self.waits_ns: list[int] = []
        self.dropped = 0
        self.messages = 0

    # -- senders

    def _least_waiting(self, sender: Sender, grouping: Grouping) -> LeastWaiting | None:
        """Tracks which task got which root, on shuffled edges from the source, as in the runtime."""
        several = self.tasks > 1 and isinstance(grouping, Shuffle)
        noted = self.hedging is not None and self.cancels and sender.leads and several
        return self.hedging.edge(sender.task, self.tasks) if self.hedging is not None and noted else None

    def _disjoint_halves(
        self, world: World, position: int, sender: Sender, grouping: Grouping
    ) -> DisjointHalves | None:
        """Keeps hedges apart from other emissions, on shuffled edges behind the first, as in the runtime."""
        several = self.tasks > 1 and isinstance(grouping, Shuffle)
        if not (self.cancels and several and not sender.leads and passes_one(world.model.operators, self.name)):
            return None
        start = stable_hash(("sides", world.seed, position, sender.task))
        return DisjointHalves(self.tasks, stable_hash(("stage", position)), start)

    def emit(self, index: int, incarnation: int, sender: int, late: bool = False) -> None:
        if not late:
            self.on_the_way[incarnation] += 1
            if self.lags_ns and self.lags_ns[index]:
                self.agenda.push(self.agenda.now_ns + self.lags_ns[index], EMIT, self, index, incarnation, sender)
                return
        if self.feedback is None:
            least_waiting, disjoint_halves = self.least_waiting[sender], self.disjoint_halves[sender]
            if disjoint_halves is not None:
                again, root = divmod(incarnation, self.roots.count)
                choice = disjoint_halves.choose(root, again)
            else:
                choice = self.choosers[sender].choose_many((self.values[index],))[0]
            if least_waiting is not None:
                if incarnation >= self.roots.count:
                    before = range(incarnation % self.roots.count, incarnation, self.roots.count)
                    choice = least_waiting.choose({*map(least_waiting.task_of, before)})
                least_waiting.sent(incarnation, choice)
            self.send(index, incarnation, sender, choice, None)
            return
        chooser = self.feedback[sender]
        chooser.tick(self.agenda.now_ns)
        choice = chooser.choose_many((self.values[index],))[0]
        if choice <= HELD:
            self.held[sender].append((index, incarnation))
        if choice != HELD:
            attached = chooser.attached.pop()[1] if chooser.attached else None
            if choice <= FIRST:
                index, incarnation = self.held[sender].popleft()
                choice = FIRST - choice
            self.send(index, incarnation, sender, choice, attached)
        if chooser.outbox:
            self.post_from_sender(sender, chooser)

    def tell_sender(self, sender: int, task: int, message: Message) -> None:
        assert self.feedback is not None
        chooser = self.feedback[sender]
        released = list(chooser.hear(task, message, self.agenda.now_ns))
        if released:
            attached = dict(chooser.attached)
            chooser.attached.clear()
            held = self.held[sender]
            for position, choice in enumerate(released):
                index, incarnation = held.popleft()
                self.send(index, incarnation, sender, choice, attached.get(position))
        if chooser.outbox:
            self.post_from_sender(sender, chooser)

    def post_from_sender(self, sender: int, chooser: FeedbackChooser) -> None:
        for task, message in chooser.outbox:
            self.post(TO_TASK, sender, task, message)
        chooser.outbox.clear()

    def post(self, kind: int, sender: int, task: int, message: Message) -> None:
        self.messages += 1
        assert self.messages <= ENDLESS * len(self.works_ns), "the two sides never come to rest"
        lane, now_ns = self.lanes[sender][task], self.agenda.now_ns
        at_ns = lane.message_ns(now_ns) if kind == TO_TASK else now_ns + lane.latency_ns
        if at_ns > now_ns:
            self.agenda.push(at_ns, kind, self, sender, task, message)
        else:
            self.agenda.mail.append((kind, self, sender, task, message))

    def send(self, index: int, incarnation: int, sender: int, choice: int, attached: Message | None) -> None:
        if choice == ALL:
            self.on_the_way[incarnation] += self.tasks - 1
            for task in range(self.tasks):
                self.send(index, incarnation, sender, task, attached)
            return
        now_ns = self.agenda.now_ns
        lane = self.lanes[sender][choice]
        if lane.instant:
            self.deliver((index, incarnation, sender, choice, attached, now_ns))
        else:
            at_ns = lane.arrival_ns(now_ns)
            self.agenda.push(at_ns, DELIVER, self, 0, 0, (index, incarnation, sender, choice, attached, at_ns))

    # -- tasks

    def deliver(self, job: Job) -> None:
        chosen, now_ns = job[3], job[5]
        if self.receivers:
            receiver = self.receivers[chosen]
            receiver.received(job[2], job[4], now_ns)
            if receiver.outbox:
                self.post_from_task(chosen)
        if self.cancels and self.roots.is_done(job[1]):
            self.drop(job)
            return
        if self.began_ns[chosen] == IDLE:
            self.start(chosen, job, now_ns)
            return
        for task in self.siblings[chosen]:
            if self.began_ns[task] == IDLE:
                self.start(task, job, now_ns)
                return
        self.queues[chosen].put(job, self.values[job[0]], now_ns)

    def start(self, task: int, job: Job, now_ns: int) -> None:
        self.began_ns[task] = now_ns
        again = job[1] // self.roots.count
        work_ns = (self.again_ns[again - 1] if again else self.works_ns)[job[0]]
        duration_ns = self.paces[task].duration_ns(now_ns, work_ns)
        heappush(self.events, (now_ns + duration_ns, FINISH, self.next(), self, task, duration_ns, job))

    def finish(self, task: int, duration_ns: int, job: Job) -> None:
        index, incarnation, sender, chosen, attached, _ = job
        now_ns = self.agenda.now_ns
        self.executed[task] += 1
        self.busy_ns[task] += duration_ns
        on_the_way = self.on_the_way
        on_the_way[incarnation] -= 1
        if self.hedging is not None:
            self.hedging.executed(incarnation, duration_ns)
        if self.children[index]:
            self.pass_on(task, index, incarnation)
        if not on_the_way[incarnation] and self.roots.complete(incarnation, now_ns) and self.hedging is not None:
            self.hedging.completed(incarnation)
        queue = self.queues[task]
        queued = len(queue)
        value = self.values[index]
        queue.ran(value, duration_ns)
        if queued:
            self.start_next(task, queue, now_ns)
        else:
            self.began_ns[task] = IDLE
        if self.receivers:
            receiver = self.receivers[chosen]
            receiver.executed(sender, value, attached, duration_ns, queued, now_ns)
            if receiver.outbox:
                self.post_from_task(chosen)

    def pass_on(self, task: int, index: int, incarnation: int) -> None:
        """Send the children of a tuple, unless another incarnation of its root is complete."""
        if self.hedging is not None and self.cancels and self.roots.is_done(incarnation):
            self.hedging.discarded(self.expected_ns(index) - self.mean_ns())
            return
        for child in self.children[index]:
            stage, first_sender = self.ways[self.stage_of[child]]
            stage.emit(child, incarnation, first_sender + task)

    def start_next(self, task: int, queue: TaskQueue, now_ns: int) -> None:
        job = queue.take()
        if self.cancels:
            while self.roots.is_done(job[1]):
                self.drop(job)
                if not len(queue):
                    self.began_ns[task] = IDLE
                    return
                job = queue.take()
        self.waits_ns.append(now_ns - job[5])
        self.start(task, job, now_ns)

    def drop(self, job: Job) -> None:
        """Throw a tuple away, because another incarnation of its root is complete."""
        _, incarnation, sender, chosen, attached, _ = job
        self.dropped += 1
        self.on_the_way[incarnation] -= 1
        if self.hedging is not None:
            self.hedging.discarded(self.expected_ns(job[0]))
        if self.receivers:
            receiver = self.receivers[chosen]
            receiver.dropped(sender, attached, len(self.queues[chosen]), self.agenda.now_ns)
            if receiver.outbox:
                self.post_from_task(chosen)

    def tell_task(self, sender: int, task: int, message: Message) -> None:
        self.receivers[task].hear(sender, message, self.agenda.now_ns)
        self.post_from_task(task)

    def post_from_task(self, task: int) -> None:
        receiver = self.receivers[task]
        for sender, message in receiver.outbox:
            self.post(TO_SENDER, sender, task, message)
        receiver.outbox.clear()

    # -- the whole stage

    def expected_ns(self, index: int) -> float:
        """The work of a tuple and all its descendants, at mean durations."""
        stages = [self.ways[self.stage_of[child]][0] for child in self.children[index]]
        after_ns = sum(stage.expected_ns(child) for child, stage in zip(self.children[index], stages, strict=True))
        return self.mean_ns() + after_ns

    def mean_ns(self) -> float:
        """The mean duration of an execution so far."""
        return sum(self.busy_ns) / max(1, sum(self.executed))

    def busy_until_ns(self, now_ns: int) -> int:
        """The busy time of all tasks together."""
        return sum(self.busy_ns) + sum(now_ns - began_ns for began_ns in self.began_ns if began_ns != IDLE)

    def validate(self) -> None:
        """Raise ``AssertionError`` if something was lost or doubled."""
        held = sum(map(len, self.held))
        queued = sum(map(len, {id(queue): queue for queue in self.queues}.values()))
        assert not held and not queued, f"tuples left over: held={held} queued={queued} stage={self.name}"
        assert set(self.began_ns) == {IDLE}, f"a task never ended: stage={self.name}"

    def report(self) -> StageReport:
        return StageReport(self.name, tuple(self.executed), tuple(self.busy_ns), self.waits_ns)


Ways = dict[int, tuple[StageAtWork, int]]
"""Position of a downstream stage -> the stage, and the position of one's first task among its senders."""


def passes_one(stages: Sequence[Stage], name: str) -> bool:
    """Whether at most one tuple of a root can reach this stage, by the shape of the model."""
    stage = next((stage for stage in stages if stage.name == name), None)
    if stage is None:
        return True  # the source
    if len(stage.inputs) != 1:
        return False
    before = next((other for other in stages if other.name == stage.inputs[0]), None)
    most = 1.0 if before is None else before.fan_out[1] if isinstance(before.fan_out, tuple) else before.fan_out
    return most <= 1 and passes_one(stages, stage.inputs[0])


def _seed(seed: int, position: int, stage: Stage, side: int) -> str:
    """The seed of one side of a grouping: of each sender, then of each task."""
    return f"{seed} {stage.name} half {side}" if position else f"{seed} half {side}"


def _seen_by(sender: Sender, grouping: Grouping) -> Grouping:
    return grouping.at(sender.task) if isinstance(grouping, Local) else grouping


def _queues(model: Model, stage: Stage) -> tuple[list[TaskQueue], list[list[int]]]:
    """The queue of each task, and the other tasks that draw from it."""
    tasks, queue = range(stage.tasks), stage.queue
    assert queue is not None, "operators have nothing left open"
    places = {
        Scope.OWN: list(tasks),
        Scope.WORKER: [model.worker_of(stage, task) for task in tasks],
        Scope.NODE: [model.node_of(stage, task) for task in tasks],
    }[queue.scope]
    shortest = queue.order is Order.SHORTEST
    made: dict[int, TaskQueue] = {
        place: ShortestFirst(queue.aging) if shortest else Fifo() for place in sorted(set(places))
    }
    siblings = [[other for other in tasks if other != task and places[other] == places[task]] for task in tasks]
    return [made[place] for place in places], siblings


def _informed(grouping: FullKnowledge, model: Model, stage: Stage) -> FullKnowledge:
    """Tell the grouping how fast tasks are as well, without slowdowns."""
    slowness = tuple(1 / model.nodes[model.node_of(stage, task)].speed for task in range(stage.tasks))
    return FullKnowledge(grouping.cumulated, grouping.slowness or slowness)
