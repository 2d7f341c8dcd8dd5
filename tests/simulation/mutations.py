"""Mutations: each breaks one rule of the delivery protocol on purpose, so that the simulation can show that it sees it.

A mutation is a context manager that patches the core (or, where the rule is a connector's, the simulated store) and
puts everything back. ``expect`` is what the failure must say, so that a mutation is killed by the rule it breaks and
not by an accident. ``redundant`` says why a mutation survives: another rule covers it, and the two must not go
together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import CommittingWriter, Entry
from tailrace.core import assembly, plan, router, sendinghalf, sharedqueue, stage, task
from tailrace.core.acks import HEDGE
from tailrace.core.coordinator import Coordinator, Phase, WorkerState
from tailrace.core.hedging import Hedging
from tailrace.core.ledger import Ledger, Root
from tailrace.core.membership import ACCEPT, REFUSE, LinkSequence, Membership
from tailrace.core.messages import (
    Command,
    Drain,
    FromWorker,
    Member,
    Persist,
    Prefixes,
    Recover,
    Send,
    ToWorker,
)
from tailrace.core.opentask import OpenBundle, OpenTask
from tailrace.core.plan import OperatorPlan, SplitPlan
from tailrace.core.receivinghalf import ReceivingHalves
from tailrace.core.router import LaneOut
from tailrace.core.sendinghalf import FeedbackOut
from tailrace.core.sinklog import DUPLICATE_DURABLE, DUPLICATE_PENDING, WRITE, SinkLog
from tailrace.core.sourcetask import SourceTask
from tailrace.core.task import Task
from tailrace.sim import faults, shapes
from tailrace.sim.faults import Scenario, SimulationFailure, run_seed
from tailrace.sim.process import SimWorker
from tailrace.sim.shapes import SimSink, SimSource, batch, several
from tailrace.sim.store import Store, StoreWriter
from tailrace.topology import Topology

Patch = AbstractContextManager[Any]


@contextmanager
def together(*patches: Patch) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


# -- identity and acknowledgement


def ack_ids_are_lineages() -> Patch:
    """The ack id of a bundle is the exclusive or of its lineages, equal for every incarnation."""
    original = LaneOut.send

    def send(self: LaneOut, *args: Any) -> int:
        before = [len(lane.bundles) for lane in self.lanes]
        ids = original(self, *args)
        for lane, length in zip(self.lanes, before, strict=True):
            for position in range(length, len(lane.bundles)):
                emission, split, offset, ack, lineages, values = lane.bundles[position]
                if lineages is not None:
                    named = 0
                    for lineage in lineages:
                        named ^= lineage
                    lane.bundles[position] = (emission, split, offset, named, lineages, values)
                    ids ^= ack ^ named
        return ids

    return patch.object(LaneOut, "send", send)


def one_register_a_root() -> Patch:
    """Replays of a root share the register, and the emission number, of its first emission."""
    original = Ledger.emit

    def emit(self: Ledger, root: Root, now_ns: int) -> int:
        if not root.emissions:
            return original(self, root, now_ns)
        root.emitted_ns = now_ns
        root.emissions.append(root.emissions[0])
        self.reemitted += 1
        return root.emissions[0]

    def durable(self: Ledger, root: Root, now_ns: int) -> None:
        root.emissions = list(dict.fromkeys(root.emissions))
        become_durable(self, root, now_ns)

    become_durable = Ledger._durable
    return together(patch.object(Ledger, "emit", emit), patch.object(Ledger, "_durable", durable))


def lineages_in_one_register() -> Patch:
    return together(ack_ids_are_lineages(), one_register_a_root())


def emissions_from_zero() -> Patch:
    original = Ledger.__init__

    def init(self: Ledger, *args: Any) -> None:
        original(self, *args)
        self._next_emission = 0

    return patch.object(Ledger, "__init__", init)


# -- the prefix


def prefix_on_complete() -> Patch:
    original = Ledger._complete

    def complete(self: Ledger, root: Root, now_ns: int) -> None:
        first = not root.complete_ns
        original(self, root, now_ns)
        if first:
            self._durable(root, now_ns)

    return patch.object(Ledger, "_complete", complete)


def prefix_is_newest() -> Patch:
    """The prefix jumps behind the newest durable root, over whatever is still pending."""

    def advance(self: Ledger, split: int) -> None:
        span = self._spans[split]
        newest = max((root.offset for root in span if root.durable), default=-1)
        while span and span[0].offset <= newest:
            root = span.popleft()
            self._pending -= 1
            self._uncommitted[split].append(root.offset)
            self._prefix[split] = root.offset + 1
            self._below[split] = root.value
            if not root.durable:
                root.durable = True
                for emission in root.emissions:
                    del self._live[emission]

    return patch.object(Ledger, "_advance", advance)


def span_from_own_prefix() -> Patch:
    """A ledger that is cut off goes on as long as its own prefix moves, further than its successor will look."""
    return patch.object(Ledger, "span", property(lambda self: self._pending))


def successor_stops_at_once() -> Patch:
    return patch.object(SourceTask, "catch_up", lambda self: None)


def span_unbounded() -> Patch:
    return patch.object(Ledger, "room", property(lambda self: 1000))


def prefix_travels_first() -> Patch:
    """Workers hear of a prefix before it is stored."""
    original = Coordinator._commit

    def commit(self: Coordinator, message: Prefixes) -> list[Command]:
        return sorted(original(self, message), key=lambda command: isinstance(command, Persist))

    return patch.object(Coordinator, "_commit", commit)


# -- recovery


def recovery_without_replay() -> Patch:
    original = SourceTask.handle

    def handle(self: SourceTask, message: ToWorker) -> None:
        again = self._again
        original(self, message)
        if isinstance(message, Recover):
            self._again = again

    return patch.object(SourceTask, "handle", handle)


def recovery_of_incomplete_only() -> Patch:
    original = Ledger.unfinished
    return patch.object(Ledger, "unfinished", lambda self: [root for root in original(self) if not root.complete_ns])


def no_backstop() -> Patch:
    return patch.object(Ledger, "overdue", lambda self, now_ns: [])


def recovery_at_once() -> Patch:
    """A recovery is announced as soon as it is due, whoever still acts on an old membership."""
    original = Coordinator._recover_if_due

    def recover(self: Coordinator, now_ns: int) -> list[Command]:
        due = self._recover_at_ns is not None and now_ns >= self._recover_at_ns
        if self.phase is not Phase.RUNNING or not due:
            return original(self, now_ns)
        self._recover_at_ns = None
        self.recoveries += 1
        return self._broadcast(Recover())

    return patch.object(Coordinator, "_recover_if_due", recover)


def recovery_before_applied() -> Patch:
    """A recovery waits until all workers are ready, but not until they act on the newest membership."""
    original = Coordinator._recover_if_due

    def recover(self: Coordinator, now_ns: int) -> list[Command]:
        for entry in self._table.values():
            if entry.state is WorkerState.READY and self.phase is Phase.RUNNING:
                entry.applied = self._version
        return original(self, now_ns)

    return patch.object(Coordinator, "_recover_if_due", recover)


def opening_workers_do_not_drain() -> Patch:
    """A worker that opens its tasks when a drain begins is told neither then nor when it is ready."""
    original = Coordinator.handle

    def handle(self: Coordinator, message: FromWorker, now_ns: int) -> list[Command]:
        commands = original(self, message, now_ns)
        return [c for c in commands if not (isinstance(c, Send) and isinstance(c.message, Drain))]

    return patch.object(Coordinator, "handle", handle)


# -- sinks


def nothing_read_back() -> Patch:
    original = assembly.open_log

    def open_log(writer: CommittingWriter, *args: Any) -> SinkLog:
        return SinkLog(original(writer, *args).prefixes, [])

    return patch.object(assembly, "open_log", open_log)


def entries_later() -> Patch:
    """Rows are visible at once, their entries with the next commit of the same writer."""
    original = StoreWriter.commit

    def commit(self: StoreWriter, entries: Sequence[Entry]) -> None:
        held: Sequence[Entry] = getattr(self, "held", [])
        self.held = entries  # type: ignore[attr-defined]
        original(self, held)

    return patch.object(StoreWriter, "commit", commit)


def duplicate_durable_at_once() -> Patch:
    original = SinkLog.admit

    def admit(self: SinkLog, split: int, offset: int, lineage: int) -> int:
        verdict = original(self, split, offset, lineage)
        return DUPLICATE_DURABLE if verdict == DUPLICATE_PENDING else verdict

    return patch.object(SinkLog, "admit", admit)


def commits_not_fenced() -> Patch:
    return patch.object(Store, "check", lambda self, sink, task, epoch: None)


def forgets_above_the_prefix() -> Patch:
    original = SinkLog.committed

    def committed(self: SinkLog) -> None:
        original(self)
        self._durable.clear()

    return patch.object(SinkLog, "committed", committed)


def takes_below_the_prefix() -> Patch:
    def admit(self: SinkLog, split: int, offset: int, lineage: int) -> int:
        if lineage in self._durable:
            return DUPLICATE_DURABLE
        return DUPLICATE_PENDING if lineage in self._open else WRITE

    return patch.object(SinkLog, "admit", admit)


def shuffled_into_sinks() -> Patch:
    turn = count()
    return patch.object(LaneOut, "_by_lineage", lambda self, lineages: [next(turn) % len(self.lanes) for _ in lineages])


# -- frames


def dead_epochs_heard() -> Patch:
    return patch.object(Membership, "counts", lambda self, worker, epoch: True)


def copies_taken() -> Patch:
    return patch.object(LinkSequence, "check", lambda self, number: ACCEPT)


def losses_unnoticed() -> Patch:
    """A skipped number is taken for nothing special: no news of a lost link."""
    original = LinkSequence.check

    def check(self: LinkSequence, number: int) -> int:
        verdict = original(self, number)
        return REFUSE if verdict == REFUSE else ACCEPT

    return patch.object(LinkSequence, "check", check)


# -- lineages


def _child_lineages(change: Callable[[Any, int, Any], tuple[Any, int, Any]]) -> Patch:
    original = router.child_lineages

    def child_lineages(parents: Any, salt: int, indices: Any) -> list[int]:
        return original(*change(parents, salt, indices))

    return together(
        *(patch.object(module, "child_lineages", child_lineages) for module in (router, stage, sendinghalf))
    )


def lineage_without_edge() -> Patch:
    return _child_lineages(lambda parents, salt, indices: (parents, 1, indices))


def lineage_without_index() -> Patch:
    return _child_lineages(lambda parents, salt, indices: (parents, salt, None))


def lineage_without_target() -> Patch:
    return patch.object(router, "broadcast_lineages", lambda lineages, task: lineages)


@contextmanager
def _other_splits(change: Callable[[SplitPlan], SplitPlan]) -> Iterator[None]:
    original = plan._plan_splits

    def plan_splits(operators: tuple[OperatorPlan, ...]) -> tuple[SplitPlan, ...]:
        return tuple(change(split) for split in original(operators))

    with patch.object(plan, "_plan_splits", plan_splits):
        shapes.case_of.cache_clear()
        try:
            yield
        finally:
            shapes.case_of.cache_clear()


def split_keys_shared() -> Patch:
    return _other_splits(lambda split: replace(split, key=split.name))


def split_salts_shared() -> Patch:
    return _other_splits(lambda split: replace(split, salt=1))


# -- load-aware groupings


def line_not_offered_again() -> Patch:
    """Tuples in line stay there, and the new half knows nothing of them."""
    return patch.object(FeedbackOut, "_offer_line", lambda self: None)


def sending_halves_kept() -> Patch:
    def bind(self: FeedbackOut, version: int) -> None:
        self.version, self._origin = version, (self.edge.index, self._sender, version)

    return patch.object(FeedbackOut, "bind", bind)


def receiving_halves_kept() -> Patch:
    return patch.object(ReceivingHalves, "bind", lambda self, version: setattr(self, "version", version))


def old_messages_heard() -> Patch:
    """A sending half takes what was said to the one before it."""
    original = FeedbackOut.hear

    def hear(self: FeedbackOut, task: int, version: int, *said: Any) -> None:
        original(self, task, max(version, self.version), *said)

    return patch.object(FeedbackOut, "hear", hear)


def old_tuples_told() -> Patch:
    """A receiving half is told of tuples that were sent by halves long gone."""
    original = ReceivingHalves._tell

    def tell(self: ReceivingHalves, version: int, *event: Any) -> None:
        original(self, max(version, self.version), *event)

    return patch.object(ReceivingHalves, "_tell", tell)


def new_messages_dropped() -> Patch:
    def forgetful(original: Callable[..., None]) -> Callable[..., None]:
        def bind(self: Any, version: int) -> None:
            self._early = []
            original(self, version)

        return bind

    return together(*(patch.object(side, "bind", forgetful(side.bind)) for side in (FeedbackOut, ReceivingHalves)))


def losses_renew_nothing() -> Patch:
    return patch.object(Coordinator, "_schedule_renewal", lambda self, at_ns: None)


def held_tuples_not_registered() -> Patch:
    """The ledger hears of a tuple in line only when it leaves."""
    original = FeedbackOut._deal_out

    def deal_out(self: FeedbackOut, *args: Any) -> int:
        held = len(self.line)
        ids = original(self, *args)
        for bundle in list(self.line)[held:]:
            ids ^= bundle[3]
        return ids

    return patch.object(FeedbackOut, "_deal_out", deal_out)


def line_unbounded() -> Patch:
    return patch.object(FeedbackOut, "full", property(lambda self: False))


# -- hedging


def complete_by_each() -> Patch:
    """Every incarnation of a hedged root that is complete completes it."""
    original = Ledger._complete

    def complete(self: Ledger, root: Root, now_ns: int) -> None:
        if root.hedged and not root.durable:
            root.complete_ns = 0
        original(self, root, now_ns)

    return patch.object(Ledger, "_complete", complete)


def cancelled_when_hedged() -> Patch:
    """What is queued of a root is thrown away as soon as it is hedged."""
    original = Hedging.due

    def due(self: Hedging, now_ns: int) -> list[Root]:
        roots = original(self, now_ns)
        self.cancels.extend(root.emissions[-1] for root in roots)
        return roots

    return patch.object(Hedging, "due", due)


def hedges_survive_recovery() -> Patch:
    """Whatever was first, all other incarnations are cancelled, those that recovery has emitted since too."""

    def race_is_over(self: Hedging, root: Root) -> bool:
        winner = self._ledger.completed_by(root)
        self.cancels.extend(emission for emission in root.emissions if emission != winner)
        return bool(winner & HEDGE)

    return patch.object(Hedging, "_race_is_over", race_is_over)


def thrown_away_is_acknowledged() -> Patch:
    original = Task.throw_away

    def throw_away(self: Task, bundle: Sequence[Any]) -> None:
        original(self, bundle)
        self.acknowledge(*bundle[:2], bundle[3])

    return patch.object(Task, "throw_away", throw_away)


# -- shared queues


def parts_keep_the_id() -> Patch:
    """Both parts of a bundle have its ack id, not ids that make it up."""
    original = sharedqueue.divided

    def divided(bundle: Any, first: int, new_id: int) -> tuple[Any, Any]:
        one, rest = ((*part[:3], bundle[3], *part[4:]) for part in original(bundle, first, new_id))
        return one, rest

    return patch.object(sharedqueue, "divided", divided)


def circle_left_late() -> Patch:
    """A worker that acts on a membership puts tuples into the node's queue of the one before, for a while."""
    original = SimWorker.gather

    def gather(self: SimWorker, members: Mapping[int, Member]) -> None:
        before = self.node_queues
        original(self, members)
        now, self.node_queues = self.node_queues, before or self.node_queues
        self.cluster.engine.after(300 * MILLISECOND_NS, lambda: setattr(self, "node_queues", now))

    return patch.object(SimWorker, "gather", gather)


def left_behind() -> Patch:
    """A task that changes queues leaves what waits in the one."""
    return patch.object(task, "_taken_from", lambda queue: [])


def node_queue_forgotten() -> Patch:
    """A worker looks no more at what is in a node's queue when it is switched off."""
    return patch.object(SimWorker, "empty_node_queues", lambda self: None)


@contextmanager
def torn_bundles() -> Iterator[None]:
    """Seeds are of one shape, in which bundles end batch by batch, on a network that loses one frame in ten."""

    def torn(topology: Topology, roots: int) -> None:
        stream = topology.source("s", SimSource("s", roots), tasks=2).flat_map("f", several("f"), tasks=2)
        stream.map_batch("b", batch("b"), max_size=2, max_wait_ms=5, tasks=2).sink("out", SimSink(), tasks=2)

    original = faults.scenario_of

    def scenario_of(rng: Random) -> Scenario:
        scenario = original(rng)
        return replace(scenario, network=replace(scenario.network, lost=0.1))

    one = patch.object(faults, "SHAPES", (torn,)), patch.object(shapes, "SHAPES", (torn,))
    with together(*one, patch.object(faults, "scenario_of", scenario_of)):
        shapes.case_of.cache_clear()
        try:
            yield
        finally:
            shapes.case_of.cache_clear()


def children_told_at_once() -> Patch:
    """A task that finishes tuples one by one tells the ids of each one's children when it is finished."""

    def close_one(self: OpenTask, bundle: OpenBundle, ids: int) -> None:
        bundle.left -= 1
        self.acknowledge(bundle.emission, bundle.split, ids if bundle.left else ids ^ bundle.ids)

    return together(torn_bundles(), patch.object(OpenTask, "_close_one", close_one))


# -- the table

AHEAD = "is ahead of"
DOUBLED = r"sink \w+: doubled"
STUCK = "the run never finished"
IN_VAIN = f"{STUCK}|was in vain"


@dataclass(frozen=True)
class Mutation:
    """One broken rule."""

    rule: str
    apply: Callable[[], Patch]
    expect: str  # what the failure must say, as a regular expression
    seeds: int = 400  # within which the simulation must fail
    first: int = 0  # those before it take long to find nothing
    sharing: bool = False  # with shared queues switched again and again
    redundant: str = ""  # why it does not fail

    @property
    def name(self) -> str:
        return self.apply.__name__


@dataclass(frozen=True)
class Verdict:
    """What became of a mutation: the seed that killed it and what it said, or none."""

    mutation: str
    seeds: int  # that ran
    seed: int | None
    message: str


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "ack ids are random",
        ack_ids_are_lineages,
        "",
        seeds=200,
        redundant="registers are per incarnation and lineages name target and edge, so no two ids in a register agree",
    ),
    Mutation("one register per (root, incarnation)", one_register_a_root, f"{STUCK}|recovery was in vain"),
    Mutation("both of the above", lineages_in_one_register, AHEAD),
    Mutation("emission numbers belong to one ledger", emissions_from_zero, "two ledgers of .* used emission number"),
    Mutation("the prefix counts durable roots, not complete ones", prefix_on_complete, AHEAD),
    Mutation("the prefix is the longest run of durable offsets", prefix_is_newest, AHEAD),
    Mutation("max_pending bounds the span", span_unbounded, "span is not bounded"),
    Mutation("a prefix is stored before anybody hears of it", prefix_travels_first, DOUBLED, seeds=600),
    Mutation("recovery emits pending roots again", recovery_without_replay, "recovery passed over"),
    Mutation(
        "recovery includes complete roots that are not durable", recovery_of_incomplete_only, "recovery passed over"
    ),
    Mutation("a timeout is the backstop", no_backstop, STUCK),
    Mutation("recovery waits for all workers to be ready", recovery_at_once, f"{STUCK}|recovery was in vain"),
    Mutation(
        "recovery waits for all to act on the membership", recovery_before_applied, "recovery was in vain", seeds=800
    ),
    Mutation(
        "a drain reaches every source",
        opening_workers_do_not_drain,
        "reads on though the run drains",
        seeds=1500,
        first=900,
    ),
    Mutation("a drain waits for a source's successor to catch up", successor_stops_at_once, DOUBLED),
    Mutation("the span begins at the committed prefix", span_from_own_prefix, DOUBLED, seeds=1500),
    Mutation("sinks read back lineages on restart", nothing_read_back, DOUBLED),
    Mutation("rows and lineages are committed together", entries_later, DOUBLED),
    Mutation("a duplicate is durable when the first copy is", duplicate_durable_at_once, AHEAD),
    Mutation("commits of a lower epoch are refused", commits_not_fenced, DOUBLED),
    Mutation("sinks remember what lies above the prefix", forgets_above_the_prefix, DOUBLED),
    Mutation("sinks drop what lies below the prefix", takes_below_the_prefix, DOUBLED),
    Mutation("incarnations of a tuple meet in one sink task", shuffled_into_sinks, DOUBLED),
    Mutation("frames of a lower epoch are refused", dead_epochs_heard, "frame of a dead epoch taken"),
    Mutation("frames count once and in order", copies_taken, "frame taken twice|frame out of order"),
    Mutation(
        "a skipped frame is reported",
        losses_unnoticed,
        "",
        seeds=200,
        redundant="the backstop finds every loss; the report only finds it sooner",
    ),
    Mutation("a lineage names the edge", lineage_without_edge, AHEAD),
    Mutation("a lineage names the output index", lineage_without_index, AHEAD),
    Mutation("a lineage names the target of a broadcast", lineage_without_target, AHEAD),
    Mutation("split keys are unique across sources", split_keys_shared, DOUBLED, seeds=600),
    Mutation("lineages begin with the split", split_salts_shared, AHEAD),
    Mutation("tuples in line are offered to the new half", line_not_offered_again, f"{STUCK}|passed over|was in vain"),
    Mutation(
        "sending halves begin anew", sending_halves_kept, f"{STUCK}|passed over|was in vain", seeds=9700, first=9600
    ),
    Mutation("receiving halves begin anew", receiving_halves_kept, f"{STUCK}|passed over|was in vain"),
    Mutation("messages to an older half are not heard", old_messages_heard, "what nobody granted"),
    Mutation("tuples of an older half are not told", old_tuples_told, "what nobody granted|what never came"),
    Mutation(
        "messages to a newer half wait for it",
        new_messages_dropped,
        "",
        seeds=200,
        redundant="either end of pull may begin to talk, and nobody else waits for an answer: only knowledge is lost",
    ),
    Mutation("a loss renews the membership", losses_renew_nothing, STUCK),
    Mutation("a tuple in line is in its register", held_tuples_not_registered, AHEAD),
    Mutation("a full line holds its task back", line_unbounded, "line is not bounded"),
    Mutation("a hedged root is complete once", complete_by_each, "a root is complete twice"),
    Mutation("what is cancelled belongs to a complete root", cancelled_when_hedged, "cancelled before it is complete"),
    Mutation("recovery forgets hedges", hedges_survive_recovery, "though recovery has emitted it since"),
    Mutation("what is thrown away is not acknowledged", thrown_away_is_acknowledged, AHEAD),
    Mutation("parts of a bundle make up its ack id", parts_keep_the_id, IN_VAIN),
    Mutation("a node's queue is left with its epochs", circle_left_late, IN_VAIN),
    Mutation("who changes queues brings what waits", left_behind, IN_VAIN, sharing=True),
    Mutation("an unwanted node's queue is emptied", node_queue_forgotten, IN_VAIN, first=200, sharing=True),
    Mutation("children are told together with their bundle", children_told_at_once, AHEAD),
)


def try_out(mutation: Mutation) -> Verdict:
    """Run seeds until one fails in the way that the mutation should make it fail."""
    with mutation.apply():
        for seed in range(mutation.first, mutation.seeds):
            try:
                run_seed(seed, sharing=mutation.sharing)
            except SimulationFailure as failure:
                if mutation.redundant or re.search(mutation.expect, str(failure)):
                    return Verdict(mutation.name, seed + 1, seed, str(failure))
    return Verdict(mutation.name, mutation.seeds, None, "")


def main() -> None:
    """Print the table of docs/simulation.md."""
    print("| rule | mutation | what the simulation says | seeds needed |\n| --- | --- | --- | --- |")
    for mutation in MUTATIONS:
        verdict = try_out(mutation)
        said = verdict.message.partition("): ")[2].partition("\n")[0].partition(" Counter(")[0].partition(" {")[0]
        shown = f"`{said}`" if said else f"nothing: {mutation.redundant or 'it survives'}"
        print(f"| {mutation.rule} | `{mutation.name}` | {shown} | {verdict.seeds if said else '-'} |", flush=True)


if __name__ == "__main__":
    main()
