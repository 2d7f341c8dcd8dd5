"""Runs a model with the same policy objects as a run, in virtual time.

Everything random is drawn before the first event, or comes from generators that belong to one chooser, receiver or
hedger each. Events happen in the order of (time, kind, sequence). A model, policies and a seed therefore give the same
result everywhere.
"""

from __future__ import annotations

import heapq
from itertools import cycle, islice

from tailrace.policy.groupings.api import Grouping
from tailrace.policy.hedging.api import HedgeRule
from tailrace.sim.load.agenda import DELIVER, FINISH, TO_SENDER, TO_TASK, WAKE, Agenda
from tailrace.sim.load.forest import Forest, grow
from tailrace.sim.load.hedging import Hedging
from tailrace.sim.load.models.model import SOURCE, Model
from tailrace.sim.load.network import Network, source_machines
from tailrace.sim.load.policies import named_policy
from tailrace.sim.load.report import Report
from tailrace.sim.load.roots import Roots
from tailrace.sim.load.stage import Sender, StageAtWork, Ways, World


def simulate(
    model: Model,
    policy: str | Grouping = "shuffle",
    *,
    hedge: HedgeRule | None = None,
    seed: int = 0,
    forest: Forest | None = None,
    replay: HedgeRule | None = None,
) -> Report:
    """Run a model once, on virtual time.

    The seed decides the tuples and when they are due; they are the same for every policy.

    Args:
        model: what is simulated.
        policy: the grouping at all stages that name none of their own: a name, as in ``POLICIES``, or an object.
        hedge: the rule by which late roots are hedged. ``None``: they are not.
        seed: decides all random choices.
        forest: the tuples, if they are known already: from a recording, say.
        replay: another name of ``hedge``.

    Returns:
        When each root was done, and what each task did.

    Example:
        >>> from tailrace.sim import Exponential, Model, Poisson, simulate
        >>> report = simulate(Model(Poisson(load=0.8), Exponential(1_000_000), tuples=1000), "least_work", seed=1)
        >>> report.policy, len(report.latencies_ns)
        ('least_work', 1000)
    """
    grouping = named_policy(policy) if isinstance(policy, str) else policy
    if forest is None:
        forest = grow(model, seed)
    else:
        forest.validate(model)
    simulation = _Simulation(model, grouping, hedge or replay, forest, seed)
    simulation.run()
    return simulation.report(policy if isinstance(policy, str) else grouping.name, seed)


class _Simulation:
    def __init__(self, model: Model, grouping: Grouping, hedge: HedgeRule | None, forest: Forest, seed: int) -> None:
        self.forest = forest
        self.agenda = agenda = Agenda()
        self.roots = roots = Roots(forest.due_ns)
        self.senders = forest.senders or list(islice(cycle(range(model.senders)), roots.count))
        self.hedging = Hedging(hedge, self.senders, roots, agenda, seed) if hedge else None
        self.stages, self.ways = _built(
            World(model, forest, roots, agenda, Network(model), self.hedging, seed), grouping
        )

    def run(self) -> None:
        for stage in self.stages:
            for task in range(len(stage.receivers)):
                stage.post_from_task(task)
        self.read_mail()
        hedging, agenda = self.hedging, self.agenda
        if hedging is not None:
            hedging.begin(self.emit, self.busy)
        events, mail, due_ns = agenda.events, agenda.mail, self.roots.due_ns
        pop = heapq.heappop
        root, end = 0, len(due_ns)
        while True:
            # Events come before roots that are due at the same time: a task that becomes free then is free.
            if events and (root == end or events[0][0] <= due_ns[root]):
                agenda.now_ns, kind, _, who, a, b, what = pop(events)
                if kind == FINISH:
                    who.finish(a, b, what)
                elif kind == DELIVER:
                    who.deliver(what)
                elif kind == TO_SENDER:
                    who.tell_sender(a, b, what)
                elif kind == TO_TASK:
                    who.tell_task(a, b, what)
                elif kind == WAKE:
                    who.wake(a)
                else:
                    who.emit(a, b, what, True)
            elif root < end:
                agenda.now_ns = due_ns[root]
                self.emit(root, root)
                if hedging is not None:
                    hedging.emitted(root)
                root += 1
            else:
                break
            if mail:
                self.read_mail()
            if hedging is not None and hedging.touched:
                hedging.turn()
                self.read_mail()
        self.validate()

    def read_mail(self) -> None:
        """Deliver messages over links without latency, in the order in which they were sent."""
        mail = self.agenda.mail
        while mail:
            kind, stage, sender, task, message = mail.popleft()
            if kind == TO_SENDER:
                stage.tell_sender(sender, task, message)
            else:
                stage.tell_task(sender, task, message)

    def emit(self, root: int, incarnation: int) -> None:
        for index in self.forest.roots[root]:
            stage, first_sender = self.ways[self.forest.stages[index]]
            stage.emit(index, incarnation, first_sender + self.senders[root])

    def busy(self) -> list[tuple[int, int]]:
        now_ns = self.agenda.now_ns
        return [(stage.busy_until_ns(now_ns), stage.tasks) for stage in self.stages]

    def validate(self) -> None:
        """Raise ``AssertionError`` if something was lost or doubled."""
        for stage in self.stages:
            stage.validate()
        self.roots.validate()
        if self.hedging is not None:
            self.hedging.validate()

    def report(self, name: str, seed: int) -> Report:
        stages = tuple(stage.report() for stage in self.stages)
        hedging = self.hedging
        return Report(
            policy=name,
            seed=seed,
            due_ns=self.roots.due_ns,
            done_ns=self.roots.done_ns,
            latencies_ns=self.roots.latencies_ns,
            executed=tuple(tuples for stage in stages for tuples in stage.executed),
            busy_ns=tuple(busy_ns for stage in stages for busy_ns in stage.busy_ns),
            messages=sum(stage.messages for stage in self.stages),
            stages=stages,
            hedge=hedging.name if hedging else None,
            hedges=hedging.issued if hedging else 0,
            hedges_won=hedging.won if hedging else 0,
            cancelled=sum(stage.dropped for stage in self.stages),
            extra_work=hedging.extra_work if hedging else 0.0,
        )


def _built(world: World, studied: Grouping) -> tuple[list[StageAtWork], Ways]:
    """All stages, and the ways from the source to them."""
    model = world.model
    tasks = {SOURCE: [Sender(task, machine, leads=True) for task, machine in enumerate(source_machines(model))]}
    ways: dict[str, Ways] = {SOURCE: {}}
    stages = []
    for position, stage in enumerate(model.operators):
        grouping = stage.grouping or studied
        grouping = named_policy(grouping) if isinstance(grouping, str) else grouping
        built = StageAtWork(world, position, grouping, [sender for name in stage.inputs for sender in tasks[name]])
        first_sender = 0
        for name in stage.inputs:
            ways[name][position] = (built, first_sender)
            first_sender += len(tasks[name])
        ways[stage.name] = built.ways
        tasks[stage.name] = [Sender(task, model.node_of(stage, task)) for task in range(stage.tasks)]
        stages.append(built)
    return stages, ways[SOURCE]
