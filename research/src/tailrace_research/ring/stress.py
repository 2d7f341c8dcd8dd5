"""``python -m tailrace_research.ring.stress``: processes at a ring are stopped, woken and killed at random, in the
middle of writes and reads, and every record is accounted for: delivered once, or given up and reported.

A record that a producer was writing when it was killed may come out or not. One whose ``put`` had returned may be
missing only if a consumer was killed over it, and then the ring has counted it as given up.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.ring import layout, stepped
from tailrace_research.ring.stress_worker import RETURNED, Journal, Work, consume, produce, run

if TYPE_CHECKING:
    from tailrace.ring.pair import PairRing
    from tailrace.ring.shared import SharedRing

TICK_S = 0.002
ROUND_S = 15.0
"""Seconds until the next ring: each round ends with a drained ring and a full account."""

REPORT_S = 5.0
PATIENCE_S = 20.0
"""No record, or no end, for longer than this is a violation."""

CAPACITIES = (1 << 16, 1 << 18, 1 << 20)
STEPS = {
    layout.SHARED: (tuple(stepped.WRITING), tuple(stepped.READING)),
    layout.PAIR: ((7, 8), (10,)),
}
CROWDS = {layout.SHARED: (3, 3), layout.PAIR: (1, 1)}  # producers, consumers
NAMES = {layout.SHARED: "shared", layout.PAIR: "pair"}

StopAt = Callable[[int], None]


@dataclass
class Account:
    """Counts of one round, or of all rounds."""

    records: int = 0  # whose put began
    put: int = 0  # whose put returned
    delivered: int = 0
    lost_with_a_consumer: int = 0  # put, not delivered: a consumer was killed over it
    given_up: int = 0  # by the ring's own count, whole batches as one
    stops: int = 0
    kills: int = 0
    violations: int = 0

    def add(self, other: Account) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name):,}" for field in fields(self))


@dataclass
class Member:
    """A process of the crowd, the present one in its place."""

    role: Callable[[Work], None]
    index: int
    pid: int = 0
    wake_ns: int | None = None  # it is stopped, until then
    doomed: bool = False  # and killed instead
    done: bool = False


class Round:
    """One ring, one crowd, so many seconds."""

    def __init__(self, kind: int, seed: int, stop_at: StopAt | None) -> None:
        from tailrace.ring.pair import PairRing
        from tailrace.ring.shared import SharedRing

        self.kind, self.seed, self.stop_at = kind, seed, stop_at
        self.rng = random.Random(seed)
        producers, consumers = CROWDS[kind]
        self.journal = Journal(producers, consumers)
        capacity = self.rng.choice(CAPACITIES)
        ring_type = PairRing if kind == layout.PAIR else SharedRing
        self.ring: PairRing | SharedRing = ring_type.create("stress", capacity)
        self.crowd = [Member(produce, index) for index in range(producers)]
        self.crowd += [Member(consume, index) for index in range(consumers)]
        self.account = Account()

    def fault(self, text: str) -> None:
        self.account.violations += 1
        print(f"violation: {text} kind={NAMES[self.kind]} seed={self.seed}", file=sys.stderr, flush=True)

    # -- processes

    def start(self, member: Member) -> None:
        steps = STEPS[self.kind][member.role is consume]
        seed = self.rng.getrandbits(32)
        work = Work(
            self.ring.segment.path, self.kind, member.index, seed, self.journal, self.stop_at, steps, stop_one_in=300
        )
        member.pid, member.wake_ns, member.doomed = os.fork(), None, False
        if member.pid == 0:
            run(work, member.role)

    def send(self, member: Member, number: int) -> None:
        os.kill(member.pid, number)

    def watch(self, again: bool) -> None:
        """Find processes that stopped or ended, and start another for each that was killed."""
        for member in self.crowd:
            while not member.done:
                pid, status = os.waitpid(member.pid, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    break
                if os.WIFSTOPPED(status):
                    self.account.stops += 1
                    member.doomed = self.rng.randrange(2) == 0
                    member.wake_ns = time.monotonic_ns() + self.rng.choice((0, 1, 5, 20, 150)) * 1_000_000
                elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and again:
                    self.account.kills += 1
                    self.start(member)
                else:
                    member.done = True
                    if status and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
                        self.fault(f"process ended badly: role={member.role.__name__} status={status}")

    def hurt(self) -> None:
        """Wake or kill processes that have been stopped for long enough; stop or kill another one."""
        now_ns = time.monotonic_ns()
        for member in self.crowd:
            if member.wake_ns is not None and now_ns >= member.wake_ns:
                member.wake_ns = None
                self.send(member, signal.SIGKILL if member.doomed else signal.SIGCONT)
        victim = self.rng.choice(self.crowd)
        if self.rng.randrange(20) == 0 and victim.wake_ns is None and not victim.done:
            self.send(victim, self.rng.choice((signal.SIGSTOP, signal.SIGKILL)))

    # -- the course of it

    def go(self, until_ns: int, report: Callable[[Account], None]) -> Account:
        try:
            for member in self.crowd:
                self.start(member)
            progress, progress_ns = 0, time.monotonic_ns()
            while time.monotonic_ns() < until_ns and not self.account.violations:
                time.sleep(TICK_S)
                self.watch(again=True)
                self.hurt()
                self.refresh()
                if self.account.put != progress:
                    progress, progress_ns = self.account.put, time.monotonic_ns()
                elif time.monotonic_ns() - progress_ns > PATIENCE_S * 1e9:
                    self.fault(f"no progress: statistics={self.ring.statistics()}")
                report(self.account)
            self.finish()
            self.check()
        finally:
            for member in self.crowd:
                if not member.done:
                    self.send(member, signal.SIGKILL)
                    os.waitpid(member.pid, 0)
            self.ring.segment.unlink()
            self.ring.detach()
            self.journal.close()
        return self.account

    def refresh(self) -> None:
        statistics = self.ring.statistics()
        self.account.records = sum(self.journal.word(index) for index in range(self.journal.producers))
        self.account.put, self.account.given_up = statistics.records, statistics.given_up

    def finish(self) -> None:
        """Producers end first, then the consumers, who find the ring closed and empty."""
        self.journal.end()
        self.stop_at = None
        for role in (produce, consume):
            until_ns = time.monotonic_ns() + int(PATIENCE_S * 1e9)
            those = [member for member in self.crowd if member.role is role]
            while not all(member.done for member in those):
                for member in self.crowd:
                    if not member.done:
                        self.send(member, signal.SIGCONT)
                time.sleep(TICK_S)
                self.watch(again=True)
                if time.monotonic_ns() > until_ns:
                    self.fault(f"does not end: role={role.__name__} statistics={self.ring.statistics()}")
                    return
            if role is produce:
                self.ring.close()

    def check(self) -> None:
        """The account of every record, and of what is left in the ring."""
        self.refresh()
        account = self.account
        account.put = account.delivered = 0
        for producer, marks in enumerate(self.journal.put):
            count = self.journal.word(producer)
            times = [row[producer][:count] for row in self.journal.got]
            for number, (mark, *each) in enumerate(zip(marks[:count], *times, strict=True)):
                account.put += mark == RETURNED
                account.delivered += any(each)
                account.lost_with_a_consumer += mark == RETURNED and not any(each)
                if sum(each) > 1:
                    self.fault(f"delivered twice: producer={producer} number={number} times={each}")
        batch = 1 if self.kind == layout.PAIR else 3
        if account.lost_with_a_consumer > account.given_up * batch:
            self.fault(f"lost: {account}")
        if not account.violations and self.ring.statistics().held:
            self.fault(f"something is left: statistics={self.ring.statistics()}")
        if self.kind == layout.SHARED and any(self.ring.segment.memory[layout.DATA[self.kind] :]):
            self.fault("something was not cleared")


def stress(seconds: float, seed: int, stop_at: StopAt | None, kinds: tuple[int, ...]) -> Account:
    """Rounds of each kind in turn. A line now and then, and the account of all."""
    total, begun_ns, last_ns = Account(), time.monotonic_ns(), 0
    until_ns = begun_ns + int(seconds * 1e9)
    length_ns = int(min(ROUND_S, seconds / len(kinds)) * 1e9)
    number = 0

    def report(now: Account) -> None:
        nonlocal last_ns
        now_ns = time.monotonic_ns()
        if now_ns - last_ns >= REPORT_S * 1e9:
            last_ns = now_ns
            kind = NAMES[kinds[number % len(kinds)]]
            print(f"{(now_ns - begun_ns) / 1e9:5.0f} s round {number} {kind:6} {now}", flush=True)

    while time.monotonic_ns() < until_ns - length_ns // 10 and not total.violations:
        kind = kinds[number % len(kinds)]
        total.add(Round(kind, seed + number, stop_at).go(time.monotonic_ns() + length_ns, report))
        number += 1
    return total


@click.command()
@click.option("--seconds", default=300.0, show_default=True, help="For how long.")
@click.option("--seed", type=int, default=None, help="Of the sizes, the stops and the kills; printed if not given.")
@click.option("--kind", type=click.Choice(["both", "pair", "shared"]), default="both", show_default=True)
def main(seconds: float, seed: int | None, kind: str) -> None:
    """Stop, wake and kill processes at a ring, and account for every record."""
    seed = random.SystemRandom().getrandbits(31) if seed is None else seed
    print(f"python -m tailrace_research.ring.stress --seconds {seconds:g} --seed {seed} --kind {kind}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            stop_at: StopAt | None = stepped.load(stepped.build(Path(folder))).stop_at
        except FileNotFoundError:
            stop_at = None
            print("there is no compiler: processes are stopped at random moments only, not at each step", flush=True)
        kinds = tuple(number for number, name in NAMES.items() if kind in (name, "both"))
        total = stress(seconds, seed, stop_at, kinds)
    print(f"{'violated' if total.violations else 'all accounted for'}: {total}", flush=True)
    sys.exit(1 if total.violations else 0)


if __name__ == "__main__":
    main()
