"""Mutations: each breaks one rule of the delivery protocol on purpose, so that the simulation can show that it sees it.

A mutation is a context manager that patches the core (or, where the rule is a connector's, the simulated store) and
puts everything back. ``expect`` is what the failure must say, so that a mutation is killed by the rule it breaks and
not by an accident. ``redundant`` says why a mutation survives: another rule covers it, and the two must not go
together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import broken_gates as gates
import broken_links as links
import broken_protocol as protocol
import broken_room as room
import broken_techniques as techniques
from broken_protocol import Patch

from tailrace.sim.faults.seeded_runs import SimulationFailure, run_seed

AHEAD = "is ahead of"
DOUBLED = r"sink \w+: doubled"
STUCK = "the run never finished"
NOT_STORED = "a prefix is told that is not stored"
HEALTHY = "a healthy worker was declared dead"
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
        protocol.ack_ids_are_lineages,
        "",
        seeds=200,
        redundant="registers are per emission and lineages name target and edge, so no two ids in a register agree",
    ),
    Mutation("one register per emission of a root", protocol.one_register_a_root, f"{STUCK}|recovery was in vain"),
    Mutation("both of the above", protocol.lineages_in_one_register, AHEAD),
    Mutation(
        "emission numbers belong to one ledger",
        protocol.emissions_from_zero,
        "two ledgers of .* used emission number",
    ),
    Mutation("the prefix counts durable roots, not complete ones", protocol.prefix_on_complete, AHEAD),
    Mutation("the prefix is the longest run of durable offsets", protocol.prefix_is_newest, AHEAD),
    Mutation("max_pending bounds the span", protocol.span_unbounded, "span is not bounded"),
    Mutation("a prefix is stored before any worker hears of it", protocol.prefix_travels_first, NOT_STORED),
    Mutation("workers hear of what was in the finished write", protocol.prefix_of_the_moment, NOT_STORED),
    Mutation("a source begins where the stored prefix is", protocol.begins_where_others_are, NOT_STORED),
    Mutation("an epoch is stored before it is used", protocol.epochs_not_stored, "an epoch is used twice"),
    Mutation(
        "a run ends after its last prefix is stored",
        protocol.settled_before_stored,
        "ended before its prefix was stored|doubled",
    ),
    Mutation("time that the driver stood still is no silence", protocol.silence_without_excuse, HEALTHY),
    Mutation("what waits to be handled has arrived", protocol.silence_until_handled, HEALTHY),
    Mutation(
        "a split that is finished does not count as held back",
        protocol.finished_splits_held_back,
        "a worker keeps dying",
        seeds=600,
    ),
    Mutation("recovery re-emits pending roots", protocol.recovery_without_reemission, "recovery passed over"),
    Mutation(
        "recovery includes complete roots that are not durable",
        protocol.recovery_of_incomplete_only,
        "recovery passed over",
    ),
    Mutation("a timeout is the backstop", protocol.no_backstop, STUCK),
    Mutation("recovery waits for all workers to be ready", protocol.recovery_at_once, f"{STUCK}|recovery was in vain"),
    Mutation(
        "recovery waits for all to act on the membership",
        protocol.recovery_before_applied,
        "recovery was in vain",
        seeds=800,
    ),
    Mutation(
        "a drain reaches every source",
        protocol.opening_workers_do_not_drain,
        "reads on though the run drains",
        seeds=1500,
        first=900,
    ),
    Mutation("a drain waits for a source's successor to catch up", protocol.successor_stops_at_once, DOUBLED),
    Mutation("an empty poll does not end a drain", protocol.catches_up_to_an_empty_poll, DOUBLED),
    Mutation("workers report how far they have seen a split", protocol.sightings_not_told, DOUBLED),
    Mutation("what a sink has read back has been seen", protocol.read_back_not_seen, DOUBLED),
    Mutation("the span begins at the committed prefix", protocol.span_from_own_prefix, "span is not bounded"),
    Mutation("sinks read back lineages on restart", protocol.nothing_read_back, DOUBLED),
    Mutation("rows and lineages are committed together", protocol.entries_later, DOUBLED),
    Mutation("a duplicate is durable when the first copy is", protocol.duplicate_durable_at_once, AHEAD),
    Mutation("commits of a lower epoch are refused", protocol.commits_not_fenced, DOUBLED),
    Mutation("a new run fences all tasks of the one before", protocol.fences_its_own_task_only, DOUBLED, seeds=1500),
    Mutation("runs that share a sink on the driver keep apart", protocol.another_job_resets, DOUBLED),
    Mutation("sinks remember what lies above the prefix", protocol.forgets_above_the_prefix, DOUBLED),
    Mutation("sinks drop what lies below the prefix", protocol.takes_below_the_prefix, DOUBLED),
    Mutation("emissions of a tuple meet in one sink task", protocol.shuffled_into_sinks, DOUBLED),
    Mutation("frames of a lower epoch are refused", protocol.dead_epochs_heard, "frame of a dead epoch taken"),
    Mutation("frames count once and in order", protocol.copies_taken, "frame taken twice|frame out of order"),
    Mutation(
        "a skipped frame is reported",
        protocol.losses_unnoticed,
        "",
        seeds=200,
        redundant="the backstop finds every loss; the report only finds it sooner",
    ),
    Mutation(
        "a broken link with a replaced worker is not reported",
        links.the_replaced_are_mourned,
        "more recoveries than losses",
        seeds=600,
    ),
    Mutation("news of a death closes links by epoch", links.old_news_close_fresh_links, "old news close a link"),
    Mutation("a lineage names the edge", protocol.lineage_without_edge, AHEAD),
    Mutation("a lineage names the output index", protocol.lineage_without_index, AHEAD),
    Mutation("a lineage names the target of a broadcast", protocol.lineage_without_target, AHEAD),
    Mutation("split keys are unique across sources", protocol.split_keys_shared, DOUBLED, seeds=600),
    Mutation(
        "lineages begin with the split",
        protocol.split_salts_shared,
        "",
        seeds=200,
        redundant="a sink compares split and offset too",
    ),
    Mutation("a sink compares split and offset too", protocol.lineages_alone_at_sinks, AHEAD),
    Mutation(
        "held tuples are offered to the new feedback sender",
        techniques.held_tuples_not_offered_again,
        f"{STUCK}|passed over|was in vain",
    ),
    Mutation(
        "feedback senders start over",
        techniques.feedback_senders_kept,
        f"{STUCK}|passed over|was in vain",
        seeds=4800,
        first=4700,
    ),
    Mutation("feedback receivers start over", techniques.feedback_receivers_kept, f"{STUCK}|passed over|was in vain"),
    Mutation("messages of an older version are not heard", techniques.old_messages_heard, "that were not granted"),
    Mutation(
        "tuples of an older version are not reported",
        techniques.old_tuples_told,
        "that were not granted|that never came",
    ),
    Mutation(
        "messages of a newer version wait for it",
        techniques.new_messages_dropped,
        "",
        seeds=200,
        redundant="either end of pull may begin to talk, and nothing else waits for an answer: only knowledge is lost",
    ),
    Mutation("a loss renews the membership", techniques.losses_renew_nothing, STUCK, seeds=1500, first=1400),
    Mutation("a held tuple is in its register", techniques.held_tuples_not_registered, AHEAD),
    Mutation("a full held queue holds its task back", techniques.held_queue_unbounded, "held queue is not bounded"),
    Mutation("a hedged root is complete once", techniques.complete_by_each, "a root is complete twice"),
    Mutation(
        "what is cancelled belongs to a complete root",
        techniques.cancelled_when_hedged,
        "cancelled before it is complete",
    ),
    Mutation("recovery forgets hedges", techniques.hedges_survive_recovery, "though recovery has emitted it since"),
    Mutation("cancelled bundles are not acknowledged", techniques.thrown_away_is_acknowledged, AHEAD),
    Mutation("parts of a bundle make up its ack id", techniques.parts_keep_the_id, IN_VAIN),
    Mutation("a node's queue is left with its epochs", techniques.node_group_left_late, IN_VAIN),
    Mutation("a task that changes queues brings what waits", techniques.left_behind, IN_VAIN, sharing=True),
    Mutation(
        "an unwanted node's queue is emptied",
        techniques.node_queue_forgotten,
        IN_VAIN,
        seeds=1500,
        first=1300,
        sharing=True,
    ),
    Mutation("acks wait for the end of a commit", room.durable_when_begun, AHEAD),
    Mutation("what comes during a commit is not of it", room.written_during_a_commit, f"{AHEAD}|{STUCK}|lost"),
    Mutation("what came during a commit waits for the next", room.durable_when_held, AHEAD),
    Mutation("full lanes hold their task back", gates.full_lanes_hold_nobody_back, "lane is not bounded", first=10),
    Mutation("links are read again when there is room", gates.links_stay_paused, STUCK),
    Mutation("a task that is held back looks for room again", gates.room_is_not_looked_for, STUCK, first=220),
    Mutation("feedback does not wait behind bundles", gates.feedback_behind_bundles, STUCK, first=130),
    Mutation("a task that is held back hears feedback", gates.held_back_hear_no_feedback, STUCK, first=40),
    Mutation("acks do not wait behind bundles, nor tasks for acks to leave", gates.acks_behind_bundles, STUCK),
    Mutation("a task that is held back takes acks, and no task waits for them", gates.held_back_take_no_acks, STUCK),
    Mutation("children are reported together with their bundle", techniques.children_told_at_once, AHEAD),
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


def row_of(mutation: Mutation, verdict: Verdict) -> str:
    """The row of docs/simulation.md about this mutation."""
    said = verdict.message.partition("): ")[2].partition("\n")[0].partition(" Counter(")[0].partition(" {")[0]
    shown = f"`{said}`" if said else f"nothing: {mutation.redundant or 'it survives'}"
    return f"| {mutation.rule} | `{mutation.name}` | {shown} | {verdict.seeds if said else '-'} |"


def try_number(number: int) -> Verdict:
    """As ``try_out``, for a pool of processes."""
    return try_out(MUTATIONS[number])


def main() -> None:
    """Print the table of docs/simulation.md."""
    print("| rule | mutation | what the simulation says | seeds needed |\n| --- | --- | --- | --- |")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for mutation, verdict in zip(MUTATIONS, pool.map(try_number, range(len(MUTATIONS))), strict=True):
            print(row_of(mutation, verdict), flush=True)


if __name__ == "__main__":
    main()
