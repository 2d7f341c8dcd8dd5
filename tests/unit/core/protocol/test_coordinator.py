"""The coordinator, event by event: what it orders, and what it refuses to hear."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core.protocol.coordinator import STABLE_NS, Coordinator, CoordinatorLimits, Phase, WorkerState
from tailrace.core.protocol.messages import (
    Abandon,
    Alive,
    Applied,
    Assign,
    Barrier,
    Command,
    Committed,
    Drain,
    Failed,
    Finish,
    Flush,
    Leave,
    LinkLost,
    Members,
    Passed,
    Persist,
    Position,
    Prefixes,
    Ready,
    Recover,
    Registered,
    Renew,
    Send,
    SourceReport,
    StartWorker,
)
from tailrace.errors import WorkerLost, WorkersMissing

LIMITS = CoordinatorLimits(
    heartbeat_timeout_ns=2_000_000_000,
    start_timeout_ns=9_000_000_000,
    settle_ns=50,
    flush_every_ns=1_000,
    leave_timeout_ns=5_000,
    max_deaths=2,
)


class Run:
    """A coordinator of two workers; a source task 0 on worker 0, and 1 on worker 1."""

    def __init__(self) -> None:
        positions = {0: Position(0, None), 1: Position(7, b"x")}
        self.coordinator = Coordinator(2, [0, 1], {0: 0, 1: 1}, positions, LIMITS)
        self.coordinator.operators = {0: ["numbers"], 1: ["parse", "model"]}
        self.coordinator.splits = {0: "numbers/0", 1: "numbers/1"}
        self.now_ns = 100

    def start(self) -> list[Command]:
        return self.done(self.coordinator.start(self.now_ns))

    def done(self, commands: list[Command]) -> list[Command]:
        """As a driver whose disk takes no time: what follows from a write comes where the write was ordered."""
        found: list[Command] = []
        for command in commands:
            found += self.done(self.coordinator.stored(self.now_ns)) if isinstance(command, Persist) else [command]
        return found

    def exit(self, worker: int, why: str) -> list[Command]:
        return self.done(self.coordinator.exited(worker, self.epoch(worker), why, self.now_ns))

    def epoch(self, worker: int) -> int:
        return self.coordinator.epoch_of(worker)

    def say(self, kind: Any, worker: int, *fields: Any) -> list[Command]:
        commands = self.tell(kind, worker, *fields)
        return self.done(commands)

    def tell(self, kind: Any, worker: int, *fields: Any) -> list[Command]:
        """The same, with a disk that has not answered yet."""
        commands = self.coordinator.handle(kind(worker, self.epoch(worker), *fields), self.now_ns)
        self.coordinator.validate()
        return commands

    def lose_link(self, worker: int) -> list[Command]:
        """With the other worker, as it is now."""
        return self.say(LinkLost, worker, 1 - worker, self.epoch(1 - worker))

    def register(self, worker: int) -> list[Command]:
        return self.say(Registered, worker, ("host", 4000 + worker), 1, "host")

    def apply(self, worker: int) -> list[Command]:
        return self.say(Applied, worker, self.coordinator.version)

    def running(self) -> Run:
        self.start()
        for worker in (0, 1):
            self.register(worker)
            self.say(Ready, worker)
        for worker in (0, 1):
            self.apply(worker)
        assert self.coordinator.phase is Phase.RUNNING
        return self

    def tick(self, after_ns: int) -> list[Command]:
        self.now_ns += after_ns
        return self.done(self.coordinator.tick(self.now_ns))

    def replace(self, worker: int) -> list[Command]:
        """Let a worker die and its successor come up, as far as the last word that recovery waits for."""
        self.exit(worker, "gone")
        self.register(worker)
        self.say(Ready, worker)
        self.apply(1 - worker)
        return self.apply(worker)


@pytest.fixture
def run() -> Run:
    return Run()


def sent(commands: list[Command], kind: type) -> list[int]:
    """The workers that a message of this kind goes to."""
    return [command.worker for command in commands if isinstance(command, Send) and isinstance(command.message, kind)]


def message(commands: list[Command], kind: type) -> Any:
    return next(c.message for c in commands if isinstance(c, Send) and isinstance(c.message, kind))


# -- the start


def test_a_run_starts_when_all_act_on_one_membership(run: Run) -> None:
    assert run.start() == [StartWorker(0, 1), StartWorker(1, 2)]
    positions = {0: Position(0, None), 1: Position(7, b"x")}
    assert run.register(0) == [Send(0, 1, Assign(positions, False))]
    alone = message(run.say(Ready, 0), Members)
    assert set(alone.members) == {0} and alone.epochs == {0: 1, 1: 2}
    assert run.apply(0) == []
    run.register(1)
    assert sent(run.say(Ready, 1), Members) == [0, 1]
    assert run.apply(1) == [] and run.coordinator.phase is Phase.STARTING
    assert sent(run.apply(0), Recover) == [0, 1]
    assert run.coordinator.phase is Phase.RUNNING and run.coordinator.recoveries == 0


def test_epochs_go_on_from_those_of_an_earlier_run() -> None:
    coordinator = Coordinator(2, [], {}, {}, LIMITS, first_epoch=41)
    assert coordinator.start(0) == [Persist({}, 43)]
    assert coordinator.stored(0) == [StartWorker(0, 41), StartWorker(1, 42)]


def test_workers_that_do_not_come_up_in_time(run: Run) -> None:
    run.start()
    run.register(0)
    run.now_ns += LIMITS.start_timeout_ns
    run.say(Alive, 0)
    assert run.tick(0) == []
    run.tick(1)
    assert isinstance(run.coordinator.error, WorkersMissing)
    text = "1 of 2 workers started: worker 1: it did not start in time; are there enough free slots?"
    assert str(run.coordinator.error) == text and run.coordinator.phase is Phase.LEAVING


def test_a_process_that_dies_before_it_registers_fails_the_start(run: Run) -> None:
    run.start()
    commands = run.exit(1, "exit code 3")
    error = run.coordinator.error
    assert str(error) == "0 of 2 workers started: worker 1: exit code 3; does its environment have tailrace?"
    assert commands[-1] == Finish(error)
    assert [c for c in commands if isinstance(c, Abandon)] == [
        Abandon(0, 1, "the run has failed"),
        Abandon(1, 2, "the run has failed"),
    ]


def test_a_worker_that_dies_while_it_opens_is_started_anew(run: Run) -> None:
    run.start()
    run.register(1)
    commands = run.exit(1, "segfault")
    assert commands == [Abandon(1, 2, "segfault"), StartWorker(1, 3)]
    assert run.coordinator.phase is Phase.STARTING and run.coordinator.error is None


# -- deaths


def test_a_death_is_told_and_the_worker_replaced(run: Run) -> None:
    run.running()
    commands = run.exit(1, "killed")
    assert commands[:2] == [Abandon(1, 2, "killed"), StartWorker(1, 3)]
    news = message(commands, Members)
    assert sent(commands, Members) == [0] and set(news.members) == {0} and news.epochs == {0: 1, 1: 3}
    assert run.coordinator.restarts_of(1) == 1


def test_recovery_waits_until_all_act_on_the_new_membership(run: Run) -> None:
    run.running()
    run.exit(1, "killed")
    assert run.apply(0) == [] and run.tick(10) == []
    run.register(1)
    run.say(Ready, 1)
    assert run.apply(1) == [] and run.tick(10) == []
    assert sent(run.apply(0), Recover) == [0, 1]
    assert run.coordinator.recoveries == 1
    assert run.apply(0) == [] and run.tick(10) == []  # once


def test_recovery_says_how_far_anybody_has_read_a_split(run: Run) -> None:
    run.running()
    run.say(SourceReport, 1, 1, False, False, frozenset(), {1: 20})
    run.say(Prefixes, 0, {0: Position(3, None)}, {0: 3})
    run.exit(1, "killed")
    run.register(1)
    run.say(Ready, 1)
    version = run.coordinator.version
    run.say(Applied, 1, version, {1: 18})
    recover = message(run.say(Applied, 0, version, {1: 25, 0: 1}), Recover)
    assert recover.reach == {1: 25}  # of split 0 nothing is known above its prefix


def test_an_answer_to_an_older_membership_is_not_enough(run: Run) -> None:
    run.running()
    run.exit(1, "killed")
    old = run.coordinator.version
    run.register(1)
    run.say(Ready, 1)
    run.apply(1)
    assert run.say(Applied, 0, old) == [] and run.tick(10) == []


def test_silence_is_death(run: Run) -> None:
    run.running()
    run.now_ns += LIMITS.heartbeat_timeout_ns
    run.say(Alive, 0)
    commands = run.tick(1)
    assert commands[:2] == [Abandon(1, 2, "no sign of life for 2 s"), StartWorker(1, 3)]
    assert run.coordinator.state_of(0) is WorkerState.READY
    assert run.coordinator.state_of(1) is WorkerState.STARTING


def test_a_zombie_is_not_heard_but_sent_away(run: Run) -> None:
    run.running()
    run.exit(1, "cut off")
    for zombie in (Alive(1, 2), Ready(1, 2), Prefixes(1, 2, {1: Position(50, None)}), Failed(1, 2, ValueError())):
        (command,) = run.coordinator.handle(zombie, run.now_ns)
        assert command == Send(1, 2, Leave("another process has taken this worker's place"))
    assert run.coordinator.positions[1].offset == 7 and run.coordinator.error is None
    assert run.coordinator.state_of(1) is WorkerState.STARTING


def test_the_exit_of_an_epoch_that_was_buried_is_no_second_death(run: Run) -> None:
    run.running()
    run.exit(1, "cut off")
    assert run.coordinator.exited(1, 2, "now really", run.now_ns) == []
    assert run.epoch(1) == 3


def test_a_source_that_died_is_not_settled_any_more(run: Run) -> None:
    run.running()
    run.say(SourceReport, 1, 1, True, False)
    run.exit(1, "killed")
    assert run.say(SourceReport, 0, 0, True, False) == []
    assert run.coordinator.phase is Phase.RUNNING


def test_a_worker_that_keeps_dying_ends_the_run(run: Run) -> None:
    run.running()
    for _ in range(LIMITS.max_deaths - 1):
        run.replace(1)
    assert run.coordinator.phase is Phase.RUNNING
    commands = run.exit(1, "exit code 9")
    text = (
        "a worker keeps dying: worker=1 deaths=2 last='exit code 9' operators=parse, model "
        "pending=numbers/0 offset 0, numbers/1 offset 7; does a tuple crash it?"
    )
    assert isinstance(run.coordinator.error, WorkerLost) and str(run.coordinator.error) == text
    assert sent(commands, Leave) == [0] and not any(isinstance(command, StartWorker) for command in commands)


def test_progress_of_all_splits_forgives_deaths(run: Run) -> None:
    run.running()
    for step in range(1, 4 * LIMITS.max_deaths):
        run.replace(1)
        run.say(Prefixes, 0, {0: Position(step, None), 1: Position(7 + step, None)})
    assert run.coordinator.phase is Phase.RUNNING and run.coordinator.restarts_of(1) == 4 * LIMITS.max_deaths - 1


def test_a_split_with_nothing_pending_holds_nobody_back(run: Run) -> None:
    """One that is finished never moves again, and is no sign of a tuple that kills."""
    run.running()
    for step in range(1, 4 * LIMITS.max_deaths):
        run.replace(0)
        run.say(SourceReport, 1, 1, False, False, frozenset({1}))
        run.say(Prefixes, 0, {0: Position(step, None)})
    assert run.coordinator.phase is Phase.RUNNING


def test_a_worker_that_never_gets_ready_is_not_forgiven(run: Run) -> None:
    """Others may go on without it for ever."""
    run.running()
    run.say(SourceReport, 0, 0, False, False, frozenset({0}))
    run.exit(1, "exit code 9")
    run.say(Prefixes, 0, {0: Position(5, None)})
    run.say(SourceReport, 0, 0, False, False, frozenset({0, 1}))
    run.exit(1, "exit code 9")
    assert isinstance(run.coordinator.error, WorkerLost)


def test_idleness_is_no_progress(run: Run) -> None:
    run.running()
    run.replace(1)
    run.say(SourceReport, 0, 0, False, False, frozenset({0, 1}))
    run.exit(1, "exit code 9")
    assert isinstance(run.coordinator.error, WorkerLost)


def test_the_successor_of_a_source_is_not_quiet_before_it_says_so(run: Run) -> None:
    """It may have died of the first tuple that it read again."""
    run.running()
    run.say(SourceReport, 1, 1, False, False, frozenset({1}))
    run.replace(1)
    run.say(Prefixes, 0, {0: Position(5, None)})
    run.exit(1, "exit code 9")
    assert isinstance(run.coordinator.error, WorkerLost)


def test_progress_of_others_does_not_forgive_what_holds_one_split_back(run: Run) -> None:
    run.running()
    run.replace(1)
    run.say(Prefixes, 0, {0: Position(5, None)})
    run.exit(1, "exit code 9")
    assert isinstance(run.coordinator.error, WorkerLost)


def test_a_long_life_forgives_deaths(run: Run) -> None:
    run.running()
    for _ in range(4 * LIMITS.max_deaths):
        run.replace(1)
        run.now_ns += STABLE_NS + 1
        run.coordinator.excuse(run.now_ns, 0)
    assert run.coordinator.phase is Phase.RUNNING


def test_a_coordinator_that_was_held_up_blames_nobody(run: Run) -> None:
    run.running()
    run.now_ns += 10 * LIMITS.heartbeat_timeout_ns
    assert run.coordinator.silent(run.now_ns) == [(0, 1), (1, 2)]
    run.coordinator.excuse(run.now_ns, 10 * LIMITS.heartbeat_timeout_ns)
    assert run.coordinator.silent(run.now_ns) == [] and run.tick(0) == []


def test_time_that_the_coordinator_was_held_up_is_no_time_to_start_or_to_leave(run: Run) -> None:
    run.start()
    run.now_ns += LIMITS.start_timeout_ns + 1
    run.coordinator.excuse(run.now_ns, LIMITS.start_timeout_ns)
    assert run.tick(0) == [] and run.coordinator.error is None
    run = Run().running()
    run.coordinator.fail(ValueError("no"), run.now_ns)
    run.now_ns += LIMITS.leave_timeout_ns + 1
    run.coordinator.excuse(run.now_ns, LIMITS.leave_timeout_ns)
    assert run.tick(0) == [] and run.coordinator.phase is Phase.LEAVING


def test_what_has_arrived_counts_though_its_turn_has_not_come(run: Run) -> None:
    run.running()
    run.now_ns += LIMITS.heartbeat_timeout_ns + 1
    run.coordinator.heard(0, 1, run.now_ns)
    run.coordinator.heard(1, 1, run.now_ns)  # of an epoch that is not hers
    assert run.coordinator.silent(run.now_ns) == [(1, 2)]
    run.coordinator.handle(Alive(0, 1), 100)  # handled late, it says when it came
    assert run.coordinator.silent(run.now_ns) == [(1, 2)]


def test_a_process_that_has_connected_is_not_late(run: Run) -> None:
    run.start()
    run.register(1)
    run.now_ns += LIMITS.start_timeout_ns
    run.coordinator.heard(0, 1, run.now_ns)
    run.coordinator.heard(1, 2, run.now_ns)
    assert run.tick(1) == [] and run.coordinator.error is None


# -- lost links


def test_a_lost_link_is_followed_by_a_recovery_after_a_while(run: Run) -> None:
    run.running()
    assert run.lose_link(0) == []
    assert run.tick(LIMITS.settle_ns - 1) == []
    assert sent(run.tick(1), Recover) == [0, 1]
    assert run.coordinator.recoveries == 1


def test_many_lost_links_make_one_recovery(run: Run) -> None:
    run.running()
    for _ in range(10):
        run.lose_link(0)
        run.lose_link(1)
        run.now_ns += 3
    assert sent(run.tick(LIMITS.settle_ns), Recover) == [0, 1]
    assert run.tick(10 * LIMITS.settle_ns) == [] and run.coordinator.recoveries == 1


def test_a_link_lost_by_a_death_needs_no_recovery_of_its_own(run: Run) -> None:
    run.running()
    run.lose_link(0)
    run.exit(1, "killed")
    assert run.tick(LIMITS.settle_ns) == []
    run.register(1)
    run.say(Ready, 1)
    run.apply(0)
    assert sent(run.apply(1), Recover) == [0, 1] and run.coordinator.recoveries == 1


def test_a_link_with_an_epoch_that_was_replaced_is_not_mourned(run: Run) -> None:
    """Its peer's death has been, or will be, recovered from. A task in a long call finds the broken link much later."""
    run.running()
    run.exit(1, "killed")
    assert run.say(LinkLost, 0, 1, 2) == []
    run.register(1)
    run.say(Ready, 1)
    run.apply(0)
    assert sent(run.apply(1), Recover) == [0, 1]
    version = run.coordinator.version
    run.say(LinkLost, 0, 1, 2)
    assert run.tick(10 * LIMITS.settle_ns) == []
    assert run.coordinator.recoveries == 1 and run.coordinator.version == version
    run.lose_link(0)
    assert sent(run.tick(LIMITS.settle_ns), Recover) == [0, 1], "but one with its successor is"


# -- renewal


def test_a_lost_link_is_followed_by_a_new_version_of_the_same_members(run: Run) -> None:
    run.running()
    before = run.coordinator.version
    run.lose_link(0)
    commands = run.tick(LIMITS.settle_ns)
    assert sent(commands, Members) == [0, 1]
    news = message(commands, Members)
    assert news.version == before + 1 and sorted(news.members) == [0, 1]


def test_the_next_version_waits_until_all_act_on_this_one(run: Run) -> None:
    run.running()
    run.say(Renew, 0)
    run.say(Renew, 1)
    assert run.tick(1) == []
    run.apply(0)
    run.apply(1)
    assert sent(run.tick(1), Members) == [0, 1]
    run.apply(0)
    run.apply(1)
    assert run.tick(1) == []


def test_what_the_backstop_found_renews_at_once_and_recovers_nothing(run: Run) -> None:
    run.running()
    commands = run.say(Renew, 1)
    assert sent(commands, Members) == [0, 1] and not sent(commands, Recover)


def test_links_that_keep_breaking_do_not_keep_a_recovery_away(run: Run) -> None:
    run.running()
    for _ in range(4):
        run.lose_link(0)
        run.tick(LIMITS.settle_ns)
        run.lose_link(1)
        run.apply(0)
        run.apply(1)
    assert run.coordinator.recoveries >= 3


# -- prefixes


def test_a_prefix_is_stored_before_anybody_hears_of_it(run: Run) -> None:
    run.running()
    assert run.tell(Prefixes, 0, {0: Position(3, b"c")}) == [Persist({0: Position(3, b"c"), 1: Position(7, b"x")}, 3)]
    assert run.coordinator.positions[0].offset == 0, "not before it is stored"
    news = Committed({0: 3})
    assert run.coordinator.stored(run.now_ns) == [Send(0, 1, news), Send(1, 2, news)]
    assert run.coordinator.positions[0] == Position(3, b"c")


def test_what_moves_during_a_write_waits_for_the_next_and_is_stored_together(run: Run) -> None:
    run.running()
    run.tell(Prefixes, 0, {0: Position(3, None)})
    assert run.tell(Prefixes, 0, {0: Position(4, None)}) == []
    assert run.tell(Prefixes, 1, {1: Position(9, None)}) == []
    assert run.tell(Prefixes, 0, {0: Position(5, None)}) == []
    commands = run.coordinator.stored(run.now_ns)
    assert message(commands, Committed) == Committed({0: 3}), "what has moved since is not stored"
    assert commands[-1] == Persist({0: Position(5, None), 1: Position(9, None)}, 3)
    assert message(run.coordinator.stored(run.now_ns), Committed) == Committed({0: 5, 1: 9})


def test_a_ledger_that_asks_again_hears_nothing_until_it_is_stored(run: Run) -> None:
    run.running()
    run.tell(Prefixes, 0, {0: Position(3, None)})
    assert run.tell(Prefixes, 0, {0: Position(3, None)}) == []
    run.coordinator.stored(run.now_ns)
    assert run.tell(Prefixes, 0, {0: Position(3, None)}) == [Send(0, 1, Committed({0: 3}))]


def test_a_process_starts_when_its_epoch_is_stored_and_all_that_its_predecessor_told(run: Run) -> None:
    run.running()
    run.tell(Prefixes, 0, {0: Position(3, None)})
    run.tell(Prefixes, 1, {1: Position(9, None)})
    commands = run.coordinator.exited(1, 2, "killed", run.now_ns)
    assert not any(isinstance(command, StartWorker | Persist) for command in commands)
    commands = run.coordinator.stored(run.now_ns)
    assert commands[-1] == Persist({0: Position(3, None), 1: Position(9, None)}, 4)
    assert not any(isinstance(command, StartWorker) for command in commands)
    run.now_ns += LIMITS.start_timeout_ns + 1
    run.say(Alive, 0)
    assert run.tick(0) == [], "a process that was not started is not late"
    assert StartWorker(1, 3) in run.coordinator.stored(run.now_ns)
    assert message(run.register(1), Assign).starts[1] == Position(9, None)


def test_a_checkpoint_that_cannot_be_written_ends_the_run(run: Run) -> None:
    run.running()
    run.tell(Prefixes, 0, {0: Position(3, None)})
    error = ValueError("no space")
    commands = run.coordinator.not_stored(error, run.now_ns)
    assert sent(commands, Leave) == [0, 1] and not sent(commands, Committed) and run.coordinator.error is error
    assert run.tell(Prefixes, 0, {0: Position(4, None)}) == []
    run.exit(0, "left")
    assert run.exit(1, "left") == [Finish(error)]


def test_a_run_is_over_when_its_last_write_is_done(run: Run) -> None:
    run.running()
    run.tell(Prefixes, 0, {0: Position(3, None)})
    run.tell(Prefixes, 1, {1: Position(9, None)})
    run.coordinator.fail(ValueError("no"), run.now_ns)
    assert run.exit(0, "left") == [] and run.exit(1, "left") == []
    assert run.coordinator.stored(run.now_ns) == [Persist({0: Position(3, None), 1: Position(9, None)}, 3)]
    assert run.coordinator.stored(run.now_ns) == [Finish(run.coordinator.error)]
    assert run.coordinator.stored(run.now_ns) == []


def test_a_disk_that_never_answers_does_not_keep_a_run_from_ending(run: Run) -> None:
    run.running()
    run.tell(Prefixes, 0, {0: Position(3, None)})
    run.coordinator.fail(ValueError("no"), run.now_ns)
    run.exit(0, "left")
    run.exit(1, "left")
    assert run.tick(LIMITS.leave_timeout_ns) == []
    assert run.tick(1) == [Finish(run.coordinator.error)]


def test_a_prefix_does_not_move_back_but_the_ledger_gets_its_answer(run: Run) -> None:
    run.running()
    assert run.say(Prefixes, 1, {1: Position(5, None)}) == [Send(1, 2, Committed({1: 7}))]
    assert run.coordinator.positions[1] == Position(7, b"x")


def test_a_successor_begins_where_the_prefix_is(run: Run) -> None:
    run.running()
    run.say(Prefixes, 1, {1: Position(9, b"z")})
    run.exit(1, "killed")
    assert message(run.register(1), Assign).starts[1] == Position(9, b"z")


def test_sinks_are_asked_to_commit_when_a_source_waits_for_it(run: Run) -> None:
    run.running()
    assert run.tick(LIMITS.flush_every_ns) == []
    run.say(SourceReport, 0, 0, False, True)
    assert sent(run.tick(LIMITS.flush_every_ns), Flush) == [0, 1]
    assert run.tick(LIMITS.flush_every_ns - 1) == []
    assert sent(run.tick(1), Flush) == [0, 1]
    run.say(SourceReport, 0, 0, False, False)
    assert run.tick(LIMITS.flush_every_ns) == []


# -- the end


def test_the_run_ends_when_all_sources_are_settled_and_all_workers_have_left(run: Run) -> None:
    run.running()
    assert run.say(SourceReport, 0, 0, True, False) == []
    assert sent(run.say(SourceReport, 1, 1, True, False), Leave) == [0, 1]
    assert run.exit(0, "left") == []
    assert run.exit(1, "left") == [Finish(None)]
    assert run.coordinator.phase is Phase.FINISHED and run.tick(10**10) == []


def test_a_worker_that_does_not_leave_is_abandoned(run: Run) -> None:
    run.running()
    run.coordinator.fail(ValueError("no"), run.now_ns)
    run.exit(0, "left")
    assert run.tick(LIMITS.leave_timeout_ns) == []
    assert run.tick(1) == [Abandon(1, 2, "it did not leave in time"), Finish(run.coordinator.error)]


def test_the_first_error_counts(run: Run) -> None:
    run.running()
    first, second = ValueError("first"), ValueError("second")
    assert sent(run.say(Failed, 1, first), Leave) == [0, 1]
    assert run.say(Failed, 0, second) == []
    assert run.coordinator.error is first


def test_a_worker_still_opening_is_told_to_leave_too(run: Run) -> None:
    run.start()
    run.register(0)
    commands = run.coordinator.fail(ValueError("no"), run.now_ns)
    assert sent(commands, Leave) == [0] and Abandon(1, 2, "the run has failed") in commands


def test_draining_is_told_once(run: Run) -> None:
    run.running()
    assert sent(run.coordinator.drain(run.now_ns), Drain) == [0, 1]
    assert run.coordinator.drain(run.now_ns) == []
    run.exit(1, "killed")
    assert message(run.register(1), Assign).draining


def test_a_run_that_is_over_does_not_drain(run: Run) -> None:
    run.running()
    run.coordinator.fail(ValueError("no"), run.now_ns)
    assert run.coordinator.drain(run.now_ns) == []


def test_a_worker_that_was_opening_when_the_drain_began_hears_of_it(run: Run) -> None:
    run.running()
    run.exit(1, "killed")
    heard = sent(run.register(1), Drain)
    heard += sent(run.coordinator.drain(run.now_ns), Drain)
    heard += sent(run.say(Ready, 1), Drain)
    assert 1 in heard


# -- barriers


def test_a_barrier_is_passed_when_all_sources_have(run: Run) -> None:
    run.running()
    commands = run.coordinator.raise_barrier()
    assert sent(commands, Barrier) == [0, 1] and not run.coordinator.passed(1)
    run.say(Passed, 0, 0, 1)
    assert not run.coordinator.passed(1)
    run.say(Passed, 1, 1, 1)
    assert run.coordinator.passed(1) and not run.coordinator.passed(2)


def test_a_barrier_stands_again_after_a_recovery(run: Run) -> None:
    run.running()
    run.coordinator.raise_barrier()
    run.say(Passed, 0, 0, 1)
    run.lose_link(0)
    assert sent(run.tick(LIMITS.settle_ns), Barrier) == [0, 1]
    run.say(Passed, 1, 1, 1)
    run.lose_link(0)
    assert sent(run.tick(LIMITS.settle_ns), Barrier) == [], "it has been passed"
