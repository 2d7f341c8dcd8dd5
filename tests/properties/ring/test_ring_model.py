"""The rings in C against their model: several ends in one process, which leave writes and reads at any step.

The rings are tiny, so that records wrap, fill up and meet all the time.
"""

from __future__ import annotations

import mmap
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.ring import layout, stepped
from tailrace.ring.model import PairModel, SharedModel

CAPACITIES = (512, 1024, 4096)


@cache
def extension() -> ModuleType:
    with tempfile.TemporaryDirectory() as folder:
        return stepped.open_library(stepped.build(Path(folder)))


def memory(kind: int, capacity: int) -> mmap.mmap:
    whole = mmap.mmap(-1, layout.DATA[kind] + capacity)
    layout.SEGMENT.pack_into(whole, 0, layout.MAGIC, layout.VERSION, kind, capacity, 1, 1, b"")
    return whole


def payload(number: int, capacity: int, share: float) -> bytes:
    length = int(share * layout.largest_payload(capacity))
    return (str(number).encode() * length)[:length]


shares = st.one_of(st.floats(0, 0.2), st.floats(0, 1), st.just(1.0))
limits = st.integers(1, 5)


class PairMachine(RuleBasedStateMachine):
    @initialize(capacity=st.sampled_from(CAPACITIES))
    def begin(self, capacity: int) -> None:
        self.memory = memory(layout.PAIR, capacity)
        self.producer, self.consumer = (extension().Pair(self.memory) for _ in range(2))
        self.model = PairModel(capacity)
        self.number = 0

    @rule(share=shares)
    def write(self, share: float) -> None:
        self.number += 1
        record = payload(self.number, self.model.capacity, share)
        assert (self.producer.write(7, record) == layout.DONE) == self.model.write(record)

    @rule(limit=limits, in_place=st.booleans())
    def read(self, limit: int, in_place: bool) -> None:
        records = self.consumer.look(limit) if in_place else self.consumer.read(limit)
        assert [(target, bytes(record)) for target, record in records] == [
            (7, record) for record in self.model.read(limit)
        ]

    @rule()
    def release(self) -> None:
        assert self.consumer.release() == layout.DONE
        self.model.release()

    @rule()
    def another_consumer(self) -> None:
        """It begins with what was not given back."""
        self.consumer = extension().Pair(self.memory)
        self.model.reading = self.model.head

    @rule()
    def another_producer(self) -> None:
        self.producer = extension().Pair(self.memory)

    @invariant()
    def same(self) -> None:
        assert self.producer.statistics()[-1] == self.model.held


class SharedMachine(RuleBasedStateMachine):
    """An end that has left somewhere does nothing more, but it may resume a write, or be buried."""

    @initialize(capacity=st.sampled_from(CAPACITIES), window=st.sampled_from([0, 1, 64]))
    def begin(self, capacity: int, window: int) -> None:
        self.memory = memory(layout.SHARED, capacity)
        self.model = SharedModel(capacity, window=window)
        self.ends: dict[int, Any] = {}
        self.left: dict[int, bytes] = {}  # and what it was writing
        self.number = 0
        for _ in range(3):
            self.another_end()

    @precondition(lambda self: len(self.ends) < 8)
    @rule()
    def another_end(self) -> None:
        self.number += 1
        end = extension().Shared(self.memory, self.number, self.model.window)
        assert end.register()
        self.ends[self.number] = end
        self.model.owners.add(self.number)

    def free(self, index: int) -> int:
        """One of the ends that have not left."""
        there = [owner for owner in self.ends if owner not in self.left]
        assume(there)
        return there[index % len(there)]

    @rule(index=st.integers(0, 7), share=shares)
    def write(self, index: int, share: float) -> None:
        owner = self.free(index)
        self.number += 1
        record = payload(self.number, self.model.capacity, share)
        assert (self.ends[owner].write(7, record) == layout.DONE) == self.model.write(owner, record)

    @rule(index=st.integers(0, 7), share=shares, step=st.sampled_from(stepped.WRITING))
    def leave_a_write(self, index: int, share: float, step: int) -> None:
        owner = self.free(index)
        self.number += 1
        record = payload(self.number, self.model.capacity, share)
        expected = self.model.write(owner, record, step)
        result = self.ends[owner].leaving_write(step, 7, record)
        assert result == {True: layout.DONE, False: layout.NONE, None: None}[expected]
        if result is None:
            self.left[owner] = record

    @rule(index=st.integers(0, 7), loser=shares, winner=shares, step=st.sampled_from([3, 4]))
    def leave_two_at_one_gap(self, index: int, loser: float, winner: float, step: int) -> None:
        """Left to chance, it would be too rare."""
        self.leave_a_write(index, loser, 2)
        self.leave_a_write(index, winner, step)

    @precondition(lambda self: any(self.model.is_writing(owner) for owner in self.left))
    @rule()
    def resume_a_write(self) -> None:
        owner = next(owner for owner in self.left if self.model.is_writing(owner))
        assert self.ends[owner].resume(self.left.pop(owner)) == layout.DONE
        self.model.resume(owner)

    @rule(index=st.integers(0, 7), limit=limits, in_place=st.booleans())
    def read(self, index: int, limit: int, in_place: bool) -> None:
        end = self.ends[owner := self.free(index)]
        records = end.look(limit) if in_place else end.read(limit)
        assert [(target, bytes(record)) for target, record in records] == [
            (7, record) for record in self.model.read(owner, limit) or []
        ]

    @rule(index=st.integers(0, 7), limit=limits, step=st.sampled_from([9, 13]))
    def leave_a_read(self, index: int, limit: int, step: int) -> None:
        owner = self.free(index)
        expected = self.model.read(owner, limit, step)
        records = self.ends[owner].leaving_read(step, limit)
        assert (records and [record for _, record in records]) == expected
        if records is None:
            self.left[owner] = b""

    @rule(index=st.integers(0, 7))
    def release(self, index: int) -> None:
        owner = self.free(index)
        assert self.ends[owner].release() == layout.DONE
        assert self.model.release(owner)

    @rule(index=st.integers(0, 7), step=st.sampled_from([10, 11, 12, 13]))
    def leave_a_release(self, index: int, step: int) -> None:
        owner = self.free(index)
        went_on = self.model.release(owner, step)
        assert self.ends[owner].leaving_release(step) == (layout.DONE if went_on else None)
        if not went_on:
            self.left[owner] = b""

    @precondition(lambda self: self.left)
    @rule(data=st.data(), index=st.integers(0, 7))
    def bury(self, data: st.DataObject, index: int) -> None:
        """Any of those that have left are proven dead."""
        owner = self.free(index)
        dead = data.draw(st.sets(st.sampled_from(sorted(self.left)), min_size=1))
        assert self.ends[owner].bury(sorted(dead)) == self.model.bury(dead)
        self.ends = {one: end for one, end in self.ends.items() if one in self.model.owners}
        self.left = {one: record for one, record in self.left.items() if one in self.model.owners}

    @invariant()
    def same(self) -> None:
        end = next(iter(self.ends.values()))
        *_, given_up, _, held = end.statistics()
        assert (given_up, held) == (self.model.given_up, self.model.held)
        assert end.owners() == self.model.owners | ({self.model.turn} - {0})

    def teardown(self) -> None:
        """With all the others dead, the ring can be drained, and is as it was in the beginning."""
        if not hasattr(self, "ends"):
            return
        self.number += 1
        last = extension().Shared(self.memory, self.number, 64)
        last.bury(sorted(self.ends))
        assert last.register()
        for _ in range(self.model.capacity // layout.UNIT):
            last.read(1)
            last.release()
        assert last.statistics()[-1] == 0
        assert last.owners() == {self.number}
        assert not any(self.memory[layout.DATA[layout.SHARED] :])


TestPair = PairMachine.TestCase
TestPair.settings = settings(max_examples=100, stateful_step_count=60)
TestShared = SharedMachine.TestCase
TestShared.settings = settings(max_examples=300, stateful_step_count=60)
