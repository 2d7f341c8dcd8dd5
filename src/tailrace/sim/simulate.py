"""The same policy objects as in a run, on virtual time.

Everything random is drawn before the first event, or comes from generators that belong to one half of a grouping each;
events happen in the order of (time, priority, sequence). A model, a policy and a seed therefore give one result,
everywhere.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from tailrace.clock import SECOND_NS
from tailrace.policy.feedback import FeedbackChooser, Message, Receiver, has_feedback
from tailrace.policy.grouping import ALL, HELD, Chooser, Grouping
from tailrace.policy.oracle import FullKnowledge
from tailrace.sim.model import Link, Model, Order, Scope
from tailrace.sim.pace import Pace
from tailrace.sim.policies import named_policy
from tailrace.sim.queues import Fifo, Job, ShortestFirst, TaskQueue
from tailrace.sim.report import Report

FINISH, DELIVER, TO_SENDER, TO_TASK = range(4)

ENDLESS = 1_000
"""Messages a tuple after which two halves are taken to be in an endless conversation."""


def simulate(model: Model, policy: str | Grouping = "shuffle", *, seed: int = 0) -> Report:
    """Run ``model`` once. The seed decides the tuples and when they are due, the same for every policy."""
    grouping = named_policy(policy) if isinstance(policy, str) else policy
    values, works_ns = model.service.draw(model.tuples, Random(f"{seed} service"))
    full_rate_per_s = model.capacity() * SECOND_NS / (sum(works_ns) / len(works_ns))
    due_ns = model.arrivals.times_ns(model.tuples, full_rate_per_s, Random(f"{seed} arrivals"))
    simulation = _Simulation(model, grouping, values, works_ns, due_ns, seed)
    simulation.run()
    return simulation.report(policy if isinstance(policy, str) else grouping.name, seed)


class _Simulation:
    def __init__(
        self,
        model: Model,
        grouping: Grouping,
        values: list[int],
        works_ns: list[int],
        due_ns: list[int],
        seed: int,
    ) -> None:
        tasks, senders = model.tasks, model.senders
        self.tasks, self.senders = tasks, senders
        self.works_ns, self.due_ns = works_ns, due_ns
        self.values = values
        if isinstance(grouping, FullKnowledge):
            grouping = _informed(grouping, model)
            self.values = works_ns  # it alone is shown what nobody can know
        rngs = [Random(f"{seed} half {half}") for half in range(senders + tasks)]
        self.choosers: list[Chooser] = [grouping.bind(tasks, rng) for rng in rngs[:senders]]
        self.feedback: list[FeedbackChooser] | None = None
        self.receivers: list[Receiver] = []
        if has_feedback(grouping):
            self.feedback = self.choosers  # type: ignore[assignment]
            self.receivers = [grouping.bind_receiver(t, tasks, senders, rngs[senders + t]) for t in range(tasks)]
        self.held: list[deque[int]] = [deque() for _ in range(senders)]

        self.paces = [Pace(model.nodes[model.node_of(task)]) for task in range(tasks)]
        self.queues, self.siblings = _queues(model)
        self.shared = model.queue.scope is not Scope.OWN
        self.lanes = [[_Lane.between(model, sender, task) for task in range(tasks)] for sender in range(senders)]
        _share_bandwidth(self.lanes, model)
        self.tuple_bytes = model.tuple_bytes

        self.now_ns = 0
        self.events: list[tuple[int, int, int, int, int, int, Any]] = []
        self.mail: deque[tuple[bool, int, int, Message]] = deque()
        self.sequence = 0
        self.idle = [True] * tasks
        self.done_ns = [-1] * len(values)
        self.executed = [0] * tasks
        self.busy_ns = [0] * tasks
        self.sent = 0
        self.latencies_ns: list[int] = []
        self.messages = 0

    # -- the loop

    def run(self) -> None:
        for task in range(len(self.receivers)):
            self.post_from_task(task)
        self.read_mail()
        events, due_ns, mail = self.events, self.due_ns, self.mail
        pop = heapq.heappop
        index, end = 0, len(due_ns)
        while True:
            # What ends at a moment has ended when something else begins at it: a task that gets free is free.
            if events and (index == end or events[0][0] <= due_ns[index]):
                self.now_ns, _, _, kind, a, b, what = pop(events)
                if kind == FINISH:
                    self.finish(a, b, what)
                elif kind == DELIVER:
                    self.deliver(a, what)
                elif kind == TO_SENDER:
                    self.tell_sender(a, b, what)
                else:
                    self.tell_task(a, b, what)
            elif index < end:
                self.now_ns = due_ns[index]
                self.arrive(index)
                index += 1
            else:
                break
            if mail:
                self.read_mail()
        self.validate()

    def read_mail(self) -> None:
        """Messages over links without latency, in the order in which they were sent."""
        mail = self.mail
        while mail:
            to_sender, sender, task, message = mail.popleft()
            if to_sender:
                self.tell_sender(sender, task, message)
            else:
                self.tell_task(sender, task, message)

    def validate(self) -> None:
        """Nothing lost, nothing doubled."""
        in_line = sum(map(len, self.held))
        queued = sum(map(len, {id(queue): queue for queue in self.queues}.values()))
        assert not in_line and not queued, f"tuples left over: held={in_line} queued={queued}"
        assert sum(self.executed) == self.sent, f"sent={self.sent} executed={sum(self.executed)}"
        assert min(self.done_ns) >= 0, f"a tuple was never run: {self.done_ns.index(-1)}"

    # -- senders

    def arrive(self, index: int) -> None:
        sender = index % self.senders
        chooser = self.choosers[sender]
        if self.feedback is None:
            self.send(index, sender, chooser.choose_many((self.values[index],))[0], None)
            return
        half = self.feedback[sender]
        half.tick(self.now_ns)
        choice = half.choose_many((self.values[index],))[0]
        if choice == HELD:
            self.held[sender].append(index)
        else:
            attached = half.attached.pop()[1] if half.attached else None
            self.send(index, sender, choice, attached)
        if half.outbox:
            self.post_from_sender(sender, half)

    def tell_sender(self, sender: int, task: int, message: Message) -> None:
        assert self.feedback is not None
        half = self.feedback[sender]
        released = half.hear(task, message, self.now_ns)
        if released:
            attached = dict(half.attached)
            half.attached.clear()
            line = self.held[sender]
            for position, choice in enumerate(released):
                self.send(line.popleft(), sender, choice, attached.get(position))
        if half.outbox:
            self.post_from_sender(sender, half)

    def post_from_sender(self, sender: int, half: FeedbackChooser) -> None:
        for task, message in half.outbox:
            self.post(False, sender, task, message)
        half.outbox.clear()

    def post(self, to_sender: bool, sender: int, task: int, message: Message) -> None:
        self.messages += 1
        assert self.messages <= ENDLESS * len(self.due_ns), "the halves never come to rest"
        latency_ns = self.lanes[sender][task].latency_ns
        if latency_ns:
            self.push(self.now_ns + latency_ns, TO_SENDER if to_sender else TO_TASK, sender, task, message)
        else:
            self.mail.append((to_sender, sender, task, message))

    def send(self, index: int, sender: int, choice: int, attached: Message | None) -> None:
        for task in range(self.tasks) if choice == ALL else (choice,):
            self.sent += 1
            lane = self.lanes[sender][task]
            job = (index, task, attached)
            if lane.instant:
                self.deliver(sender, job)
            else:
                self.push(lane.arrival_ns(self.now_ns, self.tuple_bytes), DELIVER, sender, 0, job)

    def push(self, at_ns: int, kind: int, a: int, b: int, what: Any) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (at_ns, kind, self.sequence, kind, a, b, what))

    # -- tasks

    def deliver(self, sender: int, job: Job) -> None:
        chosen = job[1]
        if self.receivers:
            receiver = self.receivers[chosen]
            receiver.received(sender, job[2], self.now_ns)
            if receiver.outbox:
                self.post_from_task(chosen)
        if self.idle[chosen]:
            self.start(chosen, job)
            return
        if self.shared:
            for task in self.siblings[chosen]:
                if self.idle[task]:
                    self.start(task, job)
                    return
        self.queues[chosen].put(job, self.values[job[0]], self.now_ns)

    def start(self, task: int, job: Job) -> None:
        self.idle[task] = False
        duration_ns = self.paces[task].duration_ns(self.now_ns, self.works_ns[job[0]])
        self.sequence += 1
        heapq.heappush(self.events, (self.now_ns + duration_ns, FINISH, self.sequence, FINISH, task, duration_ns, job))

    def finish(self, task: int, duration_ns: int, job: Job) -> None:
        index, chosen, attached = job
        now_ns = self.now_ns
        self.done_ns[index] = now_ns
        self.latencies_ns.append(now_ns - self.due_ns[index])
        self.executed[task] += 1
        self.busy_ns[task] += duration_ns
        queue = self.queues[task]
        queued = len(queue)
        value = self.values[index]
        queue.ran(value, duration_ns)
        if queued:
            self.start(task, queue.take())
        else:
            self.idle[task] = True
        if self.receivers:
            receiver = self.receivers[chosen]
            receiver.executed(index % self.senders, value, attached, duration_ns, queued, now_ns)
            if receiver.outbox:
                self.post_from_task(chosen)

    def tell_task(self, sender: int, task: int, message: Message) -> None:
        self.receivers[task].hear(sender, message, self.now_ns)
        self.post_from_task(task)

    def post_from_task(self, task: int) -> None:
        receiver = self.receivers[task]
        for sender, message in receiver.outbox:
            self.post(True, sender, task, message)
        receiver.outbox.clear()

    def report(self, name: str, seed: int) -> Report:
        return Report(
            policy=name,
            seed=seed,
            due_ns=self.due_ns,
            done_ns=self.done_ns,
            latencies_ns=self.latencies_ns,
            executed=tuple(self.executed),
            busy_ns=tuple(self.busy_ns),
            messages=self.messages,
        )


class _Lane:
    """From one sender to one task."""

    __slots__ = ("bytes_per_s", "free", "instant", "latency_ns")

    def __init__(self, link: Link) -> None:
        self.latency_ns = link.latency_ns
        self.bytes_per_s = link.bytes_per_s
        self.instant = not link.latency_ns and link.bytes_per_s is None
        self.free = [0.0]  # when the link has sent all so far; lanes over the same link share the list

    @classmethod
    def between(cls, model: Model, sender: int, task: int) -> _Lane:
        return cls(model.local if model.sender_node(sender) == model.node_of(task) else model.link)

    def arrival_ns(self, now_ns: int, size: int) -> int:
        if self.bytes_per_s is None:
            return now_ns + self.latency_ns
        self.free[0] = max(self.free[0], now_ns) + size * SECOND_NS / self.bytes_per_s
        return int(self.free[0]) + self.latency_ns


def _share_bandwidth(lanes: Sequence[Sequence[_Lane]], model: Model) -> None:
    links: dict[tuple[int, int], list[float]] = {}
    for sender, row in enumerate(lanes):
        # Each sender apart from all nodes is on a machine of its own.
        origin = model.sender_node(sender) if model.sender_node(sender) >= 0 else -1 - sender
        for task, lane in enumerate(row):
            lane.free = links.setdefault((origin, model.node_of(task)), lane.free)


def _queues(model: Model) -> tuple[list[TaskQueue], list[list[int]]]:
    """For each task its queue, and the tasks that draw from it."""
    places = {
        Scope.OWN: list(range(model.tasks)),
        Scope.WORKER: [model.worker_of(task) for task in range(model.tasks)],
        Scope.NODE: [model.node_of(task) for task in range(model.tasks)],
    }[model.queue.scope]
    shortest = model.queue.order is Order.SHORTEST
    made: dict[int, TaskQueue] = {
        place: ShortestFirst(model.queue.aging) if shortest else Fifo() for place in sorted(set(places))
    }
    siblings = [[other for other in range(model.tasks) if places[other] == place] for place in places]
    return [made[place] for place in places], siblings


def _informed(grouping: FullKnowledge, model: Model) -> FullKnowledge:
    """It knows how fast tasks are as well, slowdowns aside."""
    slowness = tuple(1 / model.nodes[model.node_of(task)].speed for task in range(model.tasks))
    return FullKnowledge(grouping.cumulated, grouping.slowness or slowness)
