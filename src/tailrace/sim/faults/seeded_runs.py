"""Seeded runs in which everything fails that can fail, with checks that no root is lost and each row appears once.

A seed decides the topology, the rates of lost, doubled and late frames, and which worker crashes, hangs or is cut off
when. A failure names its seed and the command that repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.core.emissions import is_hedge, original
from tailrace.core.protocol.coordinator import Coordinator, Phase
from tailrace.core.protocol.ledger import Root
from tailrace.core.protocol.messages import Assign, Committed, Position, ToWorker
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.source import SourceTask
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.send_order.fifo import fifo
from tailrace.policy.send_order.largest_backlog import lbf, lbf_work
from tailrace.policy.techniques import NODE, WORKER, Tail
from tailrace.sim.faults.bounds import Bounds, room_of
from tailrace.sim.faults.cluster import BACKSTOP_NS, Cluster, Crashes, Network
from tailrace.sim.faults.driver import hardship_of
from tailrace.sim.faults.eager_hedging import Eager
from tailrace.sim.faults.interfaces import Link
from tailrace.sim.faults.links import link_faults_of
from tailrace.sim.faults.nemesis import Nemesis
from tailrace.sim.faults.polls import polls_of
from tailrace.sim.faults.process import Observer, SimWorker
from tailrace.sim.faults.sinks.faults import OtherRun, bring_about, sink_faults_of
from tailrace.sim.faults.sinks.slow_commits import SlowCommits
from tailrace.sim.faults.topologies import SHAPES, Case, Row, case_of

MS = MILLISECOND_NS
MAX_EVENTS = 100_000
"""Events after which a run counts as stuck. The longest of 20,000 good runs needs fewer than half."""

REEMIT_NS = 150 * MS
"""Time in which a source emits all pending roots again after a recovery: three times what it needs."""

AT_ONCE = 5
"""Most tuples that one piece of work adds to a held queue: four roots that are read, the five children of a bundle, a
batch of three, or one root that is emitted again. There are only as many hedges as there is room for."""

HEARD_NS = 100 * MS
"""Time in which a message reaches a process that can be reached."""


class SimulationFailure(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    seed: int
    shape: str
    events: int
    deaths: int
    recoveries: int
    virtual_ms: int
    restarts: int  # restarts of the whole run, coordinator included
    lost: int  # frames
    doubled: int
    copies_refused: int
    zombies_refused: int  # frames and commits of dead epochs
    drained: int  # 1 if the user stopped the run
    hedges: int
    hedges_won: int
    unrun: int  # tuples that were cancelled
    long_calls: int
    cut: int  # frames and dials that did not get through
    waited: int  # events that waited for a busy coordinator
    pauses: int  # of the driver
    long_writes: int  # of the checkpoint
    kills: int  # of one worker by a nemesis, each after progress
    changed_plans: int  # restarts with another number of sink tasks
    long_commits: int
    on_driver: int  # 1 if sinks ended on the driver, where another run used them too
    held_back: int  # how often a task was held back because others had no room
    paused: int  # how often the links to a task were not read, because its queue was full
    digest: str  # of the journal: equal for two runs that did the same


@dataclass(frozen=True)
class Scenario:
    """Everything that a seed decides."""

    case: Case
    network: Network
    max_pending: int
    held_limit: int  # tuples that a task may hold until others have room
    crashes: Crashes
    blows: int
    drain_after_ns: int  # 0: never
    tail: Tail
    switch_after_ns: int  # hedging goes off, or on; 0: never


def scenario_of(rng: Random) -> Scenario:
    """Draw a scenario."""
    shape = rng.randrange(len(SHAPES))
    case = case_of(shape, rng.choice([2, 3]), rng.choice([6, 12, 20]))
    network = Network(
        lost=rng.choice([0, 0, 0.02, 0.1]),
        doubled=rng.choice([0, 0, 0.05]),
        delayed=rng.choice([0, 0, 0.05]),
        quiet_after_ns=rng.choice([100, 300, 600]) * MS,
    )
    crashes = Crashes(at_commit=rng.choice([0, 0, 0.1]), at_persist=rng.choice([0, 0, 0, 0.1]))
    blows = rng.choice([0, 1, 2, 4])
    drain_after_ns = rng.choice([0, 0, 0, 0, 0, 60, 120]) * MS
    limits = rng.choice([2, 5, 50]), rng.choice([1, 3, 50])
    tail = Tail(rng.choice([None, None, Eager(0.3, 30), Eager(1.0, 8)]), case.shared_queues)
    switch_after_ns = rng.choice([0, 0, 0, 50, 100]) * MS
    return Scenario(case, network, *limits, crashes, blows, drain_after_ns, tail, switch_after_ns)


class RunChecks:
    """Checks a run while it goes on, and raises as soon as a promise is broken."""

    def __init__(self, cluster: Cluster, scenario: Scenario) -> None:
        self._cluster = cluster
        self._scenario = scenario
        self._expected = scenario.case.rows_by_root
        self._recovered_ns: dict[int, int] = {}  # epoch -> when it last heard of a recovery
        self._taken: set[tuple[Link, int, int]] = set()
        self._emitted: dict[tuple[int, int], int] = {}  # (epoch, source task) -> its next emission number
        self._emitter: dict[tuple[int, int], int] = {}  # (source task, emission number) -> epoch
        self._lossless = not (scenario.network.lost or scenario.network.delayed)
        cluster.observer = Observer(
            self.prefix_is_durable,
            self.tells_what_is_stored,
            self.task_is_sound,
            self.frame_is_fresh,
            self.recovery_emits,
            self.backstop_was_due,
            self.cancels_what_has_lost,
        )

    def prefix_is_durable(self, positions: dict[int, Position]) -> None:
        """All rows of all roots below a stored prefix are committed; otherwise a crash now would lose some."""
        rows = self._cluster.store.rows
        for split, position in positions.items():
            for offset in range(self._cluster.stored[split].offset, position.offset):
                for sink, wanted in self._expected.get((split, offset), {}).items():
                    missing = wanted - rows.get(sink, Counter())
                    if missing:
                        raise SimulationFailure(f"prefix {position.offset} of split {split} is ahead of {missing}")

    def tells_what_is_stored(self, message: ToWorker) -> None:
        """Workers learn only of prefixes that are stored, which a crash of the coordinator cannot undo."""
        offsets: dict[int, int] = {}
        if isinstance(message, Committed):
            offsets = dict(message.offsets)
        elif isinstance(message, Assign):
            offsets = {split: position.offset for split, position in message.starts.items()}
        for split, offset in offsets.items():
            if offset > self._cluster.stored[split].offset:
                raise SimulationFailure(f"a prefix is told that is not stored: {offset} of split {split}")

    def task_is_sound(self, process: SimWorker, task: Task) -> None:
        if isinstance(task, SourceTask):
            if task.ledger.span > self._scenario.max_pending:
                raise SimulationFailure(f"span is not bounded: {task.ledger.span} roots pending at {task.label}")
            task.ledger.validate()
            if task.hedging is not None:
                task.hedging.validate()
            self._emissions_are_its_own(process, task)
            self._drains(process, task)
        for sink in task.sinks:
            sink.log.validate()
        if process.gates is not None:
            process.gates.validate(task)
        for edge in task.feedback_edges.values():
            if len(edge.held) >= self._scenario.held_limit + AT_ONCE:
                raise SimulationFailure(f"held queue is not bounded: {len(edge.held)} tuples held at {task.label}")

    def _drains(self, process: SimWorker, task: SourceTask) -> None:
        cluster = self._cluster
        if cluster.coordinator.draining and not task.draining and self._counts(process):
            told_ns = max(cluster.drained_ns, process.opened_ns, process.cut_off_until_ns, process.stopped_until_ns)
            if cluster.engine.now_ns > told_ns + HEARD_NS:
                raise SimulationFailure(f"{task.label} reads on though the run drains")

    def _counts(self, process: SimWorker) -> bool:
        """Whether the current coordinator counts this process as alive."""
        coordinator = self._cluster.coordinator
        return process.coordinator is coordinator and coordinator.epoch_of(process.worker) == process.epoch

    def _emissions_are_its_own(self, process: SimWorker, task: SourceTask) -> None:
        """Two ledgers never use the same emission number, since acks for a dead one may reach its successor."""
        place, end = (process.epoch, task.number), task.ledger._next_emission
        for emission in range(self._emitted.get(place, end), end):
            if self._emitter.setdefault((task.number, emission), process.epoch) != process.epoch:
                raise SimulationFailure(f"two ledgers of {task.label} used emission number {emission}")
        self._emitted[place] = end

    def frame_is_fresh(self, process: SimWorker, link: Link, number: int) -> None:
        """No frame is taken twice, out of order, or from an epoch that the receiver knows to be dead."""
        key = (link, number, process.epoch)
        if key in self._taken:
            raise SimulationFailure(f"frame taken twice: {link} number {number}")
        self._taken.add(key)
        if (link, number + 1, process.epoch) in self._taken:
            raise SimulationFailure(f"frame out of order: {link} number {number}")
        if link[1] < process.core.membership._lowest.get(link[0], 0):
            raise SimulationFailure(f"frame of a dead epoch taken: {link}")

    def recovery_emits(self, process: SimWorker, task: SourceTask) -> None:
        """Soon after a recovery, all pending roots have been emitted again or have become durable."""
        engine, heard_ns = self._cluster.engine, self._cluster.engine.now_ns
        self._recovered_ns[process.epoch] = heard_ns
        self._no_more_recoveries_than_losses(process.coordinator)
        before = [(root, _by_recovery(root)) for root in task.ledger if not root.durable]

        def look() -> None:
            again = self._recovered_ns[process.epoch] != heard_ns  # a newer recovery begins again
            if (
                again
                or not process.alive
                or process.stopped_until_ns > heard_ns
                or self._a_task_waited_since(heard_ns)
                or self._may_stand_in_line(process, task)
            ):
                return
            for root, emissions in before:
                if not root.durable and _by_recovery(root) == emissions:
                    raise SimulationFailure(f"recovery passed over offset {root.offset} of split {root.split}")

        engine.after(REEMIT_NS, look)

    def _a_task_waited_since(self, heard_ns: int) -> bool:
        """Whether some task was held back since then: sources may then emit later."""
        bounds = self._cluster.bounds
        return bounds is not None and bounds.waited_until_ns >= heard_ns

    def _no_more_recoveries_than_losses(self, coordinator: Coordinator) -> None:
        """A death leads to one recovery, however late and often its links are found broken.

        If the driver itself is late, it may learn of a death long after the broken links, which leads to two.
        """
        deaths = coordinator.next_epoch - coordinator.first_epoch - coordinator.workers
        allowed = deaths + self._cluster.wires.lost
        if self._lossless and self._cluster.driver.on_time and coordinator.recoveries > allowed:
            raise SimulationFailure(f"more recoveries than losses: {coordinator.recoveries} for {allowed}")

    def _may_stand_in_line(self, process: SimWorker, task: SourceTask) -> bool:
        """Whether roots may wait behind held tuples, which wait for credits that may be lost or refused."""
        heard = self._counts(process) and process.cut_off_until_ns < self._cluster.engine.now_ns - REEMIT_NS
        calm = self._cluster.wires.disturbed_until_ns < self._cluster.engine.now_ns - REEMIT_NS
        return bool(task.feedback_edges) and not (heard and self._lossless and calm)

    def backstop_was_due(self, process: SimWorker, task: SourceTask) -> None:
        """The recovery timeout is for losses that were not noticed. If no frames are lost, it must not be needed."""
        coordinator = self._cluster.coordinator
        if not self._counts(process) or not self._lossless or coordinator._recover_at_ns is not None:
            return
        now_ns = self._cluster.engine.now_ns
        calm_ns = max(self._cluster.disturbed_until_ns, process.cut_off_until_ns)
        for root in task.ledger:
            if not root.durable and root.emitted_ns > calm_ns and now_ns - root.emitted_ns > BACKSTOP_NS:
                raise SimulationFailure(f"recovery was in vain for offset {root.offset} of split {root.split}")

    def cancels_what_has_lost(self, process: SimWorker, task: Task, emissions: Sequence[int]) -> None:
        """No emission is cancelled whose root is not complete, or was emitted again by recovery since."""
        assert isinstance(task, SourceTask)
        for root in task.ledger:
            races = {original(emission) for emission in set(emissions).intersection(root.emissions)}
            if races:
                newest = root.emissions[-1]
                place = f"offset {root.offset} of split {root.split}"
                if not root.complete_ns:
                    raise SimulationFailure(f"cancelled before it is complete: {place}")
                if not is_hedge(newest) or races != {original(newest)}:
                    raise SimulationFailure(f"cancelled though recovery has emitted it since: {place}")

    def end(self) -> None:
        """All rows are there once. After a drain these are exactly the rows of roots below the prefix."""
        cluster = self._cluster
        for split in cluster.plan.splits if not cluster.drained_ns else ():
            reader = cluster.plan.operators[split.source].operator.body
            if cluster.stored[split.index].offset < reader.roots:
                raise SimulationFailure(f"the run ended before its prefix was stored: split {split.index}")
        for sink, all_rows in self._scenario.case.rows.items():
            wanted = self._rows_below_the_prefix(sink) if cluster.drained_ns else all_rows
            got = cluster.store.rows.get(sink, Counter())
            if wanted - got:
                raise SimulationFailure(f"sink {sink}: lost {dict(wanted - got)}")
            if got - wanted:
                raise SimulationFailure(f"sink {sink}: doubled {dict(got - wanted)}")

    def other_run_has_its_rows(self, other: OtherRun) -> None:
        for sink in self._scenario.case.rows:
            wrong = other.wrong(sink)
            if wrong:
                raise SimulationFailure(f"sink {sink}: doubled or lost of another run {dict(wrong)}")

    def _rows_below_the_prefix(self, sink: str) -> Counter[Row]:
        rows: Counter[Row] = Counter()
        for (split, offset), by_sink in self._expected.items():
            if offset < self._cluster.stored[split].offset:
                rows.update(by_sink.get(sink, Counter()))
        return rows


def _by_recovery(root: Root) -> int:
    """How often a root was emitted, not counting hedges."""
    return len(root.emissions) - root.hedges


SCOPES = (None, WORKER, NODE)
SCHEDULERS: tuple[SendScheduler | None, ...] = (lbf(), lbf(interval_ms=5), lbf_work(3), fifo(), None)


def run_seed(seed: int, scheduled: bool = False, sharing: bool = False, lines: list[str] | None = None) -> Outcome:
    """Run a seed. Raises ``SimulationFailure``, with the seed in its text, if a promise is broken.

    Args:
        seed: decides everything that happens.
        scheduled: use a send scheduler that the seed chooses, for part of the run or all of it.
        sharing: switch again and again how tasks share queues.
        lines: receives the journal of the run, even if it fails.
    """
    rng = Random(seed)
    scenario = scenario_of(rng)
    sends = Random(f"{seed} send")
    send, later = (sends.choice(SCHEDULERS) if scheduled else None for _ in range(2))
    scenario = replace(scenario, tail=replace(scenario.tail, send=send))
    plan = scenario.case.plan
    limits = scenario.max_pending, scenario.held_limit
    link_rng = Random(f"{seed} links")
    faults = link_faults_of(link_rng)
    links, driver = (faults, link_rng), (hardship_of(seed), Random(f"{seed} disk"))
    polls = polls_of(seed, scenario.drain_after_ns > 0)
    cluster = Cluster(plan, rng, scenario.network, *limits, scenario.crashes, scenario.tail, *links, *driver, polls)
    if lines is not None:
        cluster.journal.lines = lines
    cluster.commits = SlowCommits(seed)
    room = room_of(seed)
    bounds = cluster.bounds = None if room is None else Bounds(cluster, room, seed)
    checks = RunChecks(cluster, scenario)
    nemesis = Nemesis(cluster, seed)
    sink_faults = sink_faults_of(seed)
    other_run = bring_about(sink_faults, cluster, scenario.case)
    cluster.start()
    for _ in range(scenario.blows):
        cluster.engine.after(rng.randrange(30 * MS, scenario.network.quiet_after_ns), lambda: strike(cluster))
    if scenario.drain_after_ns:
        cluster.engine.after(scenario.drain_after_ns, cluster.drain)
    if scenario.switch_after_ns:
        hedge = None if scenario.tail.hedge else Eager(1.0, 8)
        cluster.engine.after(scenario.switch_after_ns, lambda: cluster.switch(hedge=hedge, send=later))
    if sharing:
        share_differently(cluster, Random(f"{seed} share"))
    try:
        if not cluster.engine.run(lambda: cluster.finished, MAX_EVENTS):
            raise SimulationFailure("the run never finished: a root is lost, or waited for in vain")
        if cluster.error is not None:
            raise SimulationFailure(f"the run failed: {cluster.error}")
        checks.other_run_has_its_rows(other_run)
        checks.end()
        cluster.coordinator.validate()
    except Exception as failure:
        raise SimulationFailure(
            f"seed {seed} ({plan.name}, {plan.workers} workers): {failure}\n"
            f"repeat with: python -m tailrace.sim --seed {seed}{' --scheduled' * scheduled}{' --sharing' * sharing}"
        ) from failure
    counters = [
        counted for process in cluster.by_epoch.values() for t in process.tasks.values() for counted in t.counters
    ]
    note_end(cluster)
    return Outcome(
        seed,
        plan.name,
        cluster.engine.events,
        cluster.coordinator.next_epoch - 1 - plan.workers * (1 + cluster.tally.restarts),
        cluster.coordinator.recoveries,
        cluster.engine.now_ns // MS,
        cluster.tally.restarts,
        cluster.tally.lost,
        cluster.tally.doubled,
        cluster.tally.copies_refused,
        cluster.tally.zombies_refused,
        int(cluster.drained_ns > 0),
        sum(counted.hedges for counted in counters),
        sum(counted.hedges_won for counted in counters),
        sum(counted.unrun + counted.unrun_hedges for counted in counters),
        cluster.wires.long_calls,
        cluster.wires.blocked,
        cluster.driver.waited,
        cluster.driver.pauses,
        cluster.driver.long_writes,
        nemesis.kills,
        cluster.tally.changed_plans,
        cluster.commits.count,
        int(sink_faults.on_driver),
        0 if bounds is None else bounds.held_back,
        0 if bounds is None else bounds.pauses,
        cluster.journal.digest(),
    )


def note_end(cluster: Cluster) -> None:
    """Add the counts of the simulation and of each task to the journal."""
    journal, tally, wires, driver = cluster.journal, cluster.tally, cluster.wires, cluster.driver
    for epoch, process in sorted(cluster.by_epoch.items()):
        for number, task in sorted(process.tasks.items()):
            task.settle()
            task.show()
            for counted in task.counters:
                journal.note(
                    "task",
                    *(epoch, number, counted.operator),
                    *(counted.received, counted.emitted, counted.skipped, counted.duplicates),
                    *(counted.reemitted, counted.completed, counted.durable, counted.feedback_messages),
                    *(counted.hedges, counted.hedges_won, counted.hedges_wasted),
                    *(counted.unrun, counted.unrun_hedges),
                )
    journal.note("network", tally.lost, tally.doubled, tally.copies_refused, tally.zombies_refused)
    journal.note("links", wires.long_calls, wires.blocked, wires.lost)
    journal.note("driver", driver.waited, driver.pauses, driver.long_writes, tally.restarts, tally.changed_plans)
    journal.note("sinks", cluster.commits.count, cluster.drained_ns)
    if cluster.bounds is not None:
        journal.note("bounds", cluster.bounds.held_back, cluster.bounds.pauses)
    journal.note("end", cluster.engine.events, cluster.coordinator.next_epoch, cluster.coordinator.recoveries)


def share_differently(cluster: Cluster, rng: Random) -> None:
    """Switch how queues are shared, a few times or many, until the network is quiet."""
    times = rng.choice([2, 3, 10, 40])
    at_ns = 0
    for _ in range(times):
        at_ns += rng.randrange(2, 40) * MS
        if at_ns < cluster.network.quiet_after_ns:
            scope = rng.choice(SCOPES)
            cluster.engine.after(at_ns, lambda scope=scope: cluster.switch(shared_queues=scope))  # type: ignore[misc]


def strike(cluster: Cluster) -> None:
    """Hit a live worker: kill it, stop it for a while, or cut it off from the coordinator for a while."""
    if cluster.coordinator.phase is Phase.STARTING:  # a run whose first start fails just reports that
        cluster.engine.after(10 * MS, lambda: strike(cluster))
        return
    rng = cluster.rng
    alive = [process for process in cluster.by_epoch.values() if process.alive]
    if not alive:
        return
    process = rng.choice(alive)
    blow = rng.randrange(3)
    until_ns = cluster.engine.now_ns + rng.randrange(10, 300) * MS
    if blow == 0:
        process.die("killed")
    elif blow == 1:
        process.stopped_until_ns = max(until_ns, process.stopped_until_ns)
        cluster.disturbed(until_ns)
    else:
        process.cut_off_until_ns = max(until_ns, process.cut_off_until_ns)
