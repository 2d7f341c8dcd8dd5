"""Rules that groupings by load, hedges and shared queues live by, each broken on purpose: see ``mutations``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from broken_protocol import Patch, together

from tailrace.clock import MILLISECOND_NS
from tailrace.core.emissions import is_hedge
from tailrace.core.feedback.receiver import FeedbackReceiver
from tailrace.core.feedback.sender import FeedbackSender
from tailrace.core.hedging.races import HedgeRaces
from tailrace.core.protocol.coordinator import Coordinator
from tailrace.core.protocol.ledger import Ledger, Root
from tailrace.core.protocol.messages import Member
from tailrace.core.queues import shared
from tailrace.core.tasks import base as task
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.deferred import DeferredTask
from tailrace.core.tasks.open_bundle import OpenBundle
from tailrace.sim.faults import seeded_runs, topologies
from tailrace.sim.faults.process import SimWorker
from tailrace.sim.faults.seeded_runs import Scenario
from tailrace.sim.faults.topologies import SimSink, SimSource, batch, several
from tailrace.topology import Topology

# -- load-aware groupings


def held_tuples_not_offered_again() -> Patch:
    """Held tuples stay where they are, and the new feedback sender knows nothing of them."""
    return patch.object(FeedbackSender, "_choose_for_held", lambda self: None)


def feedback_senders_kept() -> Patch:
    def bind(self: FeedbackSender, version: int) -> None:
        self.version, self._origin = version, (self.edge.index, self._sender, version)

    return patch.object(FeedbackSender, "bind", bind)


def feedback_receivers_kept() -> Patch:
    return patch.object(FeedbackReceiver, "bind", lambda self, version: setattr(self, "version", version))


def old_messages_heard() -> Patch:
    """A feedback sender takes what was said to the one before it."""
    original = FeedbackSender.hear

    def hear(self: FeedbackSender, task: int, version: int, *said: Any) -> None:
        original(self, task, max(version, self.version), *said)

    return patch.object(FeedbackSender, "hear", hear)


def old_tuples_told() -> Patch:
    """A feedback receiver is told of tuples that were sent by senders long gone."""
    original = FeedbackReceiver._process

    def tell(self: FeedbackReceiver, version: int, *event: Any) -> None:
        original(self, max(version, self.version), *event)

    return patch.object(FeedbackReceiver, "_process", tell)


def new_messages_dropped() -> Patch:
    def forgetful(original: Callable[..., None]) -> Callable[..., None]:
        def bind(self: Any, version: int) -> None:
            self._early = []
            original(self, version)

        return bind

    return together(*(patch.object(side, "bind", forgetful(side.bind)) for side in (FeedbackSender, FeedbackReceiver)))


def losses_renew_nothing() -> Patch:
    return patch.object(Coordinator, "_schedule_renewal", lambda self, at_ns: None)


def held_tuples_not_registered() -> Patch:
    """The ledger hears of a held tuple only when it leaves."""
    original = FeedbackSender._deal_out

    def deal_out(self: FeedbackSender, *args: Any) -> int:
        held = len(self.held)
        ids = original(self, *args)
        for bundle in list(self.held)[held:]:
            ids ^= bundle[3]
        return ids

    return patch.object(FeedbackSender, "_deal_out", deal_out)


def held_queue_unbounded() -> Patch:
    return patch.object(FeedbackSender, "full", property(lambda self: False))


# -- hedging


def complete_by_each() -> Patch:
    """Every incarnation of a hedged root that is complete completes it."""
    original = Ledger._complete

    def complete(self: Ledger, root: Root, now_ns: int) -> None:
        if root.hedges and not root.durable:
            root.complete_ns = 0
        original(self, root, now_ns)

    return patch.object(Ledger, "_complete", complete)


def cancelled_when_hedged() -> Patch:
    """What is queued of a root is thrown away as soon as it is hedged."""
    original = HedgeRaces.hedge

    def hedge(self: HedgeRaces, root: Root, cancels: bool) -> int:
        self._cancels.append(root.emissions[-1])
        return original(self, root, cancels)

    return patch.object(HedgeRaces, "hedge", hedge)


def hedges_survive_recovery() -> Patch:
    """Whatever was first, all other incarnations are cancelled, those that recovery has emitted since too."""

    def completed(self: HedgeRaces, root: Root) -> bool:
        winner = self._ledger.completed_by(root)
        self._cancels.extend(emission for emission in root.emissions if emission != winner)
        return is_hedge(winner)

    return patch.object(HedgeRaces, "completed", completed)


def thrown_away_is_acknowledged() -> Patch:
    original = Task.throw_away

    def throw_away(self: Task, bundle: Sequence[Any]) -> None:
        original(self, bundle)
        self.acknowledge(*bundle[:2], bundle[3])

    return patch.object(Task, "throw_away", throw_away)


# -- shared queues


def parts_keep_the_id() -> Patch:
    """Both parts of a bundle have its ack id, not ids that make it up."""
    original = shared.divided

    def divided(bundle: Any, first: int, new_id: int) -> tuple[Any, Any]:
        one, rest = ((*part[:3], bundle[3], *part[4:]) for part in original(bundle, first, new_id))
        return one, rest

    return patch.object(shared, "divided", divided)


def node_group_left_late() -> Patch:
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

    original = seeded_runs.scenario_of

    def scenario_of(rng: Random) -> Scenario:
        scenario = original(rng)
        return replace(scenario, network=replace(scenario.network, lost=0.1))

    one = patch.object(seeded_runs, "SHAPES", (torn,)), patch.object(topologies, "SHAPES", (torn,))
    with together(*one, patch.object(seeded_runs, "scenario_of", scenario_of)):
        topologies.case_of.cache_clear()
        try:
            yield
        finally:
            topologies.case_of.cache_clear()


def children_told_at_once() -> Patch:
    """A task that finishes tuples one by one tells the ids of each one's children when it is finished."""

    def close_one(self: DeferredTask, bundle: OpenBundle, ids: int) -> None:
        bundle.left -= 1
        self.acknowledge(bundle.emission, bundle.split, ids if bundle.left else ids ^ bundle.ids)

    return together(torn_bundles(), patch.object(DeferredTask, "_close_one", close_one))
