"""A model of the rings without memory, atomics or processes: the oracle that the C code is tested against.

A process may abandon a write or a read at one of its steps (see ``stepped``), as if it had died or stopped there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from tailrace.ring.layout import VIEWS, largest_payload, record_size


class State(Enum):
    """The state of a record."""

    RESERVED = auto()  # space without a head
    WRITING = auto()
    READY = auto()
    TAKEN = auto()
    DONE = auto()  # read, given up, or a marker that skips the rest before the end


@dataclass
class Record:
    """A record in the model of a ring."""

    position: int
    size: int
    state: State
    owner: int  # the process that writes it; once it is taken, the one that reads it
    payload: bytes = b""


@dataclass
class Track:
    """Positions in a ring: where the next record goes, and whether it fits."""

    capacity: int
    head: int = 0
    tail: int = 0
    records: list[Record] = field(default_factory=list)  # from head to tail

    @property
    def held(self) -> int:
        return self.tail - self.head

    def skip(self, size: int) -> int:
        """The bytes to skip before the end, if the record does not fit there; else 0."""
        left = self.capacity - self.tail % self.capacity
        return left if left < size else 0

    def append(self, size: int, state: State, owner: int, payload: bytes = b"") -> Record:
        record = Record(self.tail, size, state, owner, payload)
        self.records.append(record)
        self.tail += size
        return record

    def drop(self, position: int) -> None:
        self.records = [record for record in self.records if record.position >= position]
        self.head = position


class PairModel(Track):
    """One producer, one consumer. Law: what was written is read once, in order, and frees its space when released."""

    reading = 0

    def write(self, payload: bytes) -> bool:
        size = record_size(len(payload))
        assert len(payload) <= largest_payload(self.capacity)
        skip = self.skip(size)
        if self.held + skip + size > self.capacity:
            return False
        if skip:
            self.append(skip, State.DONE, 0)
        self.append(size, State.READY, 0, payload)
        return True

    def read(self, limit: int) -> list[bytes]:
        found = [record for record in self.records if record.position >= self.reading and record.state is State.READY]
        for record in found[:limit]:
            self.reading = record.position + record.size
        return [record.payload for record in found[:limit]]

    def release(self) -> None:
        self.drop(self.reading)


@dataclass
class SharedModel(Track):
    """Many producers, many consumers. Law: a record is read once, or it is given up and its process is dead."""

    window: int = 64
    turn: int = 0  # the process that left while it had the turn; 0 if none
    clearing: int = 0  # up to which position it was about to clear
    announced: dict[int, tuple[int, int]] = field(default_factory=dict)  # owner -> position and size of a reservation
    owners: set[int] = field(default_factory=set)
    given_up: int = 0

    # -- writing

    def write(self, owner: int, payload: bytes, leave_at: int = 0) -> bool | None:
        """Whether there was room; None if the process left at step ``leave_at``."""
        size = record_size(len(payload))
        while True:
            skip = self.skip(size)
            if self.held + (skip or size) > self.capacity:
                self.announced.pop(owner, None)
                return False
            if leave_at == 1:
                return None
            self.announced[owner] = self.tail, skip or size
            if leave_at == 2:
                return None
            record = self.append(skip or size, State.RESERVED, owner, payload)
            if leave_at in (3, 4):
                return None
            record.state = State.DONE if skip else State.WRITING
            if leave_at == 5:
                return None
            if skip:
                continue
            if leave_at in (6, 7):
                return None
            record.state = State.READY
            return None if leave_at == 8 else True

    def resume(self, owner: int) -> None:
        """A process that left while writing publishes its record after all."""
        (record,) = (one for one in self.records if one.owner == owner and one.state is State.WRITING)
        record.state = State.READY

    def is_writing(self, owner: int) -> bool:
        return any(record.owner == owner and record.state is State.WRITING for record in self.records)

    # -- reading

    def read(self, owner: int, limit: int, leave_at: int = 0) -> list[bytes] | None:
        if self.turn or len(self.taken(owner)) == VIEWS:
            return []
        found: list[bytes] = []
        unfinished = 0
        for record in self.records:
            if len(found) == limit or unfinished > self.window:
                break
            if record.state is State.RESERVED and len(self._lengths(record)) > 1:
                break
            unfinished += record.state in (State.RESERVED, State.WRITING)
            if record.state is State.READY:
                if leave_at == 9:
                    self.turn, self.clearing = owner, self.head
                    return None
                record.state, record.owner = State.TAKEN, owner
                found.append(record.payload)
        if leave_at == 13:
            self.turn, self.clearing = owner, self.head
            return None
        return found

    def taken(self, owner: int) -> list[Record]:
        return [record for record in self.records if record.state is State.TAKEN and record.owner == owner]

    def release(self, owner: int, leave_at: int = 0) -> bool:
        """False if the process left at step ``leave_at``."""
        for record in self.taken(owner):
            if leave_at == 10:
                return False
            record.state = State.DONE
        if self.turn:
            return True
        cleared = self._done_up_to()
        if leave_at == 13 or (leave_at in (11, 12) and cleared > self.head):
            self.turn, self.clearing = owner, cleared
            if leave_at == 13:
                self.drop(cleared)
            return False
        self.drop(cleared)
        return True

    def _done_up_to(self) -> int:
        return next((record.position for record in self.records if record.state is not State.DONE), self.tail)

    def _lengths(self, gap: Record) -> set[int]:
        """Sizes that processes have announced for a reservation at this position."""
        return {size for position, size in self.announced.values() if position == gap.position}

    # -- dead processes

    def bury(self, dead: set[int]) -> int:
        if self.turn and self.turn not in dead:
            return 0
        if self.turn:
            self.drop(self.clearing)
            self.turn = 0
        before, all_known = self.given_up, True
        for record in self.records:
            of_dead = record.owner in dead
            if record.state is State.RESERVED:
                there = {owner for owner, (position, _) in self.announced.items() if position == record.position}
                of_dead = there <= dead
                if not of_dead and (there & dead or len(self._lengths(record)) > 1):
                    all_known = False
                    break
            if of_dead and record.state in (State.RESERVED, State.WRITING, State.TAKEN):
                record.state = State.DONE
                self.given_up += 1
        if all_known:
            self.owners -= dead
            self.announced = {owner: place for owner, place in self.announced.items() if owner not in dead}
        self.drop(self._done_up_to())
        return self.given_up - before
