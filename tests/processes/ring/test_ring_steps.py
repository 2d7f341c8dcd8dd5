"""A process is stopped, or killed, at each step of a write and of a read, and the others must not mind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.ring import stepped
from tailrace.ring.end import RingEnd
from tailrace.ring.layout import record_size
from tailrace.ring.pair import PairRing
from tailrace.ring.shared import SharedRing
from tailrace.testing.processes import is_stopped, wait_until

CAPACITY = 1 << 16
SOON_S = 0.15  # longer than it takes to look for the dead


class Child:
    """``ring_child.py``, which stops where it is told to."""

    def __init__(self, library: Path, segment: Path, kind: str) -> None:
        words = [sys.executable, str(Path(__file__).with_name("ring_child.py")), str(library), str(segment), kind]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.answer() == "ready"

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stopped_in(self, line: str, step: int) -> Child:
        self.say(f"stop {step}")
        self.say(line)
        wait_until(lambda: is_stopped(self.process.pid), 20)
        return self

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


NewChild = Callable[[RingEnd], Child]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stepped.build(tmp_path_factory.mktemp("stepped"))


@pytest.fixture
def child(library: Path) -> Iterator[NewChild]:
    children: list[Child] = []

    def start(ring: RingEnd) -> Child:
        kind = "pair" if isinstance(ring, PairRing) else "shared"
        children.append(Child(library, ring.segment.path, kind))
        return children[-1]

    yield start
    for one in children:
        if one.process.poll() is None:
            one.kill()


@pytest.fixture
def shared() -> Iterator[SharedRing]:
    with SharedRing.create("test", CAPACITY) as ring:
        yield ring
        ring.segment.unlink()


@pytest.fixture
def pair() -> Iterator[PairRing]:
    with PairRing.create("test", CAPACITY) as ring:
        yield ring
        ring.segment.unlink()


def put(ring: RingEnd, *words: str) -> None:
    for word in words:
        assert ring.put(word.encode(), 1)


def got(ring: RingEnd, timeout_s: float = SOON_S) -> list[str]:
    """All that comes until nothing does."""
    found = []
    while (record := ring.get(timeout_s)) is not None:
        found.append(record[1].split()[0].decode())
    return found


def leave_before_the_end(ring: SharedRing, rest: int) -> None:
    """Put and get, until only so many bytes are left before the end of the data."""
    for size in (20_000, 20_000, CAPACITY - rest - 40_000):
        put(ring, "x" * (size - record_size(0)))
        assert len(got(ring, 0)) == 1


def check_usable(ring: SharedRing, given_up: int, ends: int = 1) -> None:
    """Nothing is left of the dead, and three times the ring's size goes through."""
    assert got(ring) == []
    assert ring.statistics().held == 0
    assert ring.statistics().given_up == given_up
    assert len(ring.core.owners()) == ends
    for number in range(3 * CAPACITY // 1000):
        assert ring.put(str(number).encode().ljust(1000), 1)
        assert ring.get(1) == (0, str(number).encode().ljust(1000))
    assert not any(ring.segment.memory[-CAPACITY:]), "something was not cleared"


# -- producers

RESERVED = range(3, 9)
SHOWN = 8


@pytest.mark.parametrize("step", stepped.WRITING)
def test_others_pass_a_stopped_producer(shared: SharedRing, child: NewChild, step: int) -> None:
    producer = child(shared).stopped_in("put slow 3000", step)
    words = [str(number) for number in range(20)]
    put(shared, *words)
    assert got(shared, 0.01) == (["slow"] if step == SHOWN else []) + words
    assert (shared.statistics().held > 0) == (step in RESERVED and step != SHOWN)
    producer.go_on()
    assert producer.answer() == "put True"
    assert got(shared) == ([] if step == SHOWN else ["slow"])
    check_usable(shared, given_up=0, ends=2)


@pytest.mark.parametrize("step", stepped.WRITING)
def test_the_ring_fills_behind_a_stopped_producer_and_empties_after(
    shared: SharedRing, child: NewChild, step: int
) -> None:
    producer = child(shared).stopped_in("put slow 3000", step)
    count = 0
    while count < 100 and shared.put(str(count).encode().ljust(1000), 0.01):
        count += 1
        shared.get(0)
    assert count == (100 if step < 3 or step == SHOWN else (CAPACITY - record_size(3000)) // record_size(1000))
    producer.go_on()
    assert producer.answer() == "put True"
    assert [word for word in got(shared) if word == "slow"] == ([] if step == SHOWN else ["slow"])
    check_usable(shared, given_up=0, ends=2)


@pytest.mark.parametrize("step", stepped.WRITING)
@pytest.mark.parametrize("after", [pytest.param(0, marks=pytest.mark.soak), 3])
def test_a_killed_producer_is_given_up(shared: SharedRing, child: NewChild, step: int, after: int) -> None:
    producer = child(shared).stopped_in("put lost 3000", step)
    words = [str(number) for number in range(after)]
    put(shared, *words)
    producer.kill()
    assert got(shared) == (["lost"] if step == SHOWN else []) + words
    check_usable(shared, given_up=int(step in RESERVED and step != SHOWN))
    put_again = child(shared)
    put_again.say("put again 100")
    assert got(shared, 1) == ["again"]


@pytest.mark.parametrize("step", [3, 4, 5])
def test_a_producer_killed_over_a_flush(shared: SharedRing, child: NewChild, step: int) -> None:
    """The rest before the end is too small: the first reservation is for the mark, and there dies its producer."""
    leave_before_the_end(shared, 256)
    child(shared).stopped_in("put lost 3000", step).kill()
    put(shared, "after")
    assert got(shared) == ["after"]
    check_usable(shared, given_up=int(step < 5))


SOAK = pytest.mark.soak
LENGTHS = [(100, 500), (500, 100), pytest.param(300, 300, marks=SOAK), pytest.param(100, 30_000, marks=SOAK)]


@pytest.mark.parametrize(("loser_bytes", "winner_bytes"), LENGTHS)
@pytest.mark.parametrize("after", [pytest.param(0, marks=pytest.mark.soak), 2])
@pytest.mark.parametrize("rest", [CAPACITY, 256])
def test_winner_and_loser_killed_at_one_gap(
    shared: SharedRing, child: NewChild, loser_bytes: int, winner_bytes: int, after: int, rest: int
) -> None:
    """The loser has stored another length for the same place; with little left, one of them wants to flush."""
    if rest < CAPACITY:
        leave_before_the_end(shared, rest)
    loser = child(shared).stopped_in(f"put loser {loser_bytes}", 2)
    winner = child(shared).stopped_in(f"put winner {winner_bytes}", 3)
    words = [str(number) for number in range(after)]
    put(shared, *words)
    loser.kill()
    winner.kill()
    assert got(shared) == words
    check_usable(shared, given_up=1)


@pytest.mark.parametrize(("loser_bytes", "winner_bytes"), LENGTHS)
@pytest.mark.parametrize("killed", ["winner", "loser"])
def test_one_of_two_killed_at_one_gap(
    shared: SharedRing, child: NewChild, loser_bytes: int, winner_bytes: int, killed: str
) -> None:
    """Nothing can be told before the other one goes on; then all can."""
    ends = {"loser": child(shared).stopped_in(f"put loser {loser_bytes}", 2)}
    ends["winner"] = child(shared).stopped_in(f"put winner {winner_bytes}", 3)
    put(shared, "after")
    ends.pop(killed).kill()
    assert got(shared) == (["after"] if loser_bytes == winner_bytes else [])
    assert shared.statistics().given_up == 0
    ((other, alive),) = ends.items()
    alive.go_on()
    assert alive.answer() == "put True"
    assert sorted(got(shared)) == sorted({other, "after"} - ({"after"} if loser_bytes == winner_bytes else set()))
    check_usable(shared, given_up=int(killed == "winner"), ends=2)


def test_all_places_taken_by_the_dead(shared: SharedRing, child: NewChild) -> None:
    """A newcomer buries them before it has a place itself."""
    ends = [SharedRing.attach(shared.segment.path) for _ in range(62)]
    child(shared).stopped_in("put lost 100", 3).kill()
    with SharedRing.attach(shared.segment.path) as newcomer:
        assert newcomer.statistics().given_up == 1
        put(newcomer, "here")
    assert got(shared) == ["here"]
    for end in ends:
        end.detach()


# -- consumers

HAS_TURN = {9, 11, 12, 13}
GIVEN_UP = {10, 13}  # taken, and not given back
READ_BY_THE_DEAD = {11, 12}  # given back: the others have nothing more to do with it


@pytest.mark.parametrize("step", stepped.READING)
def test_a_stopped_consumer(shared: SharedRing, child: NewChild, step: int) -> None:
    """With the turn it holds up the others, who wait no longer than they want; each record comes once."""
    words = [str(number) for number in range(10)]
    put(shared, *words)
    consumer = child(shared).stopped_in("get", step)
    put(shared, "more")
    before = got(shared)
    assert before == ([] if step in HAS_TURN else [*words[1:], "more"])
    consumer.go_on()
    its_own = consumer.answer().removeprefix("got ")
    assert sorted([its_own, *before, *got(shared)]) == sorted([*words, "more"])
    check_usable(shared, given_up=0, ends=2)


@pytest.mark.parametrize("step", stepped.READING)
def test_a_killed_consumer(shared: SharedRing, child: NewChild, step: int) -> None:
    words = [str(number) for number in range(10)]
    put(shared, *words)
    child(shared).stopped_in("get", step).kill()
    put(shared, "more")
    lost = GIVEN_UP | READ_BY_THE_DEAD
    assert got(shared) == [*words[step in lost :], "more"]
    check_usable(shared, given_up=int(step in GIVEN_UP))


@pytest.mark.parametrize("step", [11, 12])
def test_a_consumer_killed_while_clearing_across_the_end(shared: SharedRing, child: NewChild, step: int) -> None:
    """What is given back begins before the end of the data and ends after its beginning."""
    leave_before_the_end(shared, 10_000)
    slow = child(shared).stopped_in("put end 3000", 5)
    put(shared, "z" * 20_000)
    assert len(got(shared, 0.01)) == 1
    slow.go_on()
    child(shared).stopped_in("get", step).kill()
    assert got(shared) == []
    check_usable(shared, given_up=0, ends=2)


def test_a_full_ring_whose_consumer_died_with_the_turn_takes_producers_again(
    shared: SharedRing, child: NewChild
) -> None:
    put(shared, "first" * 100)
    consumer = child(shared).stopped_in("get", 11)
    while shared.put(b"x" * 1000, 0.01):
        pass
    consumer.kill()
    assert shared.put(b"x" * 20, 1)  # a producer that waits looks after the dead as well


# -- a pair


@pytest.mark.parametrize("step", [7, 8])
@pytest.mark.parametrize("killed", [False, True])
def test_the_producer_of_a_pair(pair: PairRing, child: NewChild, step: int, killed: bool) -> None:
    """What it has not shown is not there, and another can take its place."""
    producer = child(pair).stopped_in("put slow 3000", step)
    assert got(pair) == (["slow"] if step == 8 else [])
    if killed:
        producer.kill()
        producer = child(pair)
    else:
        producer.go_on()
        assert producer.answer() == "put True"
    producer.say("put next 100")
    assert got(pair, 1) == (["slow", "next"] if step == 7 and not killed else ["next"])
    assert pair.statistics().held == 0


@pytest.mark.parametrize("killed", [False, True])
def test_the_consumer_of_a_pair(pair: PairRing, child: NewChild, killed: bool) -> None:
    """What it has not given back the next one reads again."""
    put(pair, "one", "two")
    consumer = child(pair).stopped_in("get", 10)
    put(pair, "three")
    if killed:
        consumer.kill()
        consumer = child(pair)
        consumer.say("get")
    else:
        consumer.go_on()
    assert consumer.answer() == "got one"
    consumer.say("get")
    assert consumer.answer() == "got two"
