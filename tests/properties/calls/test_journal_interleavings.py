"""Writers, readers, torn writes, garbage and dropping in any order: a key finds what was kept under it, or nothing that
may be missed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.calls.journal_keys import Place, tuple_key
from tailrace.calls.journal_records import MAGIC, encode_record
from tailrace.runtime.calls import journal_files
from tailrace.runtime.calls.journal_files import FileJournal
from tailrace.runtime.calls.journal_folder import SUFFIX
from tailrace.runtime.calls.journal_index import JournalIndex

PROCESSES = range(3)
NUMBERS = st.integers(0, 11)
SPLITS = (101, 102)
RESULTS = st.none() | st.integers() | st.text(max_size=30) | st.binary(max_size=30) | st.lists(st.none())
SMALL_SEGMENT = 150  # bytes, so that a few results fill one


def place_of(number: int) -> Place:
    return Place(SPLITS[number % 2], number // 2)


def key_of(number: int) -> bytes:
    return tuple_key("score", place_of(number), number, "value")


class JournalMachine(RuleBasedStateMachine):
    """Each process has an index of its own, as real ones do. A process that dies takes its locks with it."""

    keep = False

    @initialize()
    def start(self) -> None:
        self.segment_bytes = journal_files.SEGMENT_BYTES
        journal_files.SEGMENT_BYTES = SMALL_SEGMENT
        self.folder = Path(tempfile.mkdtemp())
        self.epoch = 0
        self.journals = {process: self.opened(process) for process in PROCESSES}
        self.kept: dict[int, list[Any]] = {}
        self.begun: dict[int, set[int]] = {}  # by process: the calls that it makes now
        self.prefixes = dict.fromkeys(SPLITS, 0)
        self.foreign: dict[Path, bytes] = {}

    def opened(self, process: int) -> FileJournal:
        self.epoch += 1
        return FileJournal(JournalIndex(self.folder), f"score-{process}-e{self.epoch}", keep=self.keep)

    @rule(process=st.sampled_from(PROCESSES), number=NUMBERS, result=RESULTS)
    def keep_result(self, process: int, number: int, result: Any) -> None:
        self.journals[process].keep(key_of(number), result)
        self.begun.get(process, set()).discard(number)
        self.kept.setdefault(number, []).append(result)

    @rule(process=st.sampled_from(PROCESSES), number=NUMBERS)
    def find(self, process: int, number: int) -> None:
        self.check(number, self.journals[process].find(key_of(number)))

    @rule(process=st.sampled_from(PROCESSES), number=NUMBERS)
    def begin(self, process: int, number: int) -> None:
        """Exactly one process may make a call, as long as it lives."""
        taken = any(number in begun for begun in self.begun.values())
        index = self.journals[process]._index
        index._looked_s = 0.0  # a process that has died is noticed within a second
        assert self.journals[process].begin(key_of(number)) is not taken
        if not taken:
            self.begun.setdefault(process, set()).add(number)

    @precondition(lambda self: any(self.begun.values()))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from(sorted(process for process, begun in self.begun.items() if begun)))
        number = data.draw(st.sampled_from(sorted(self.begun[process])))
        self.journals[process].give_up(key_of(number))
        self.begun[process].discard(number)

    @rule(process=st.sampled_from(PROCESSES), number=NUMBERS, data=st.data())
    def die_in_a_write(self, process: int, number: int, data: st.DataObject) -> None:
        """Whatever part of the record was written is there. Then another process takes its place."""
        journal = self.journals[process]
        record = encode_record(key_of(number), b"never kept")
        torn = record[: data.draw(st.integers(0, len(record) - 1))]
        if journal._descriptor is not None:
            os.write(journal._descriptor, torn)
        self.end(journal)
        self.begun.pop(process, None)
        self.journals[process] = self.opened(process)

    @rule(process=st.sampled_from(PROCESSES))
    def close_and_open(self, process: int) -> None:
        self.journals[process].close()
        self.begun.pop(process, None)
        self.journals[process] = self.opened(process)

    @rule(content=st.binary(max_size=200), data=st.data())
    def garbage_appears(self, content: bytes, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([f"garbage-{len(self.foreign)}{SUFFIX}", f"notes-{len(self.foreign)}.txt"]))
        if not content.startswith(MAGIC):
            self.foreign[self.folder / name] = content
            (self.folder / name).write_bytes(content)

    @precondition(lambda self: not self.keep)
    @rule(process=st.sampled_from(PROCESSES), split=st.sampled_from(SPLITS), offset=st.integers(0, 6))
    def prefix_is_stored(self, process: int, split: int, offset: int) -> None:
        self.prefixes[split] = max(offset, self.prefixes[split])
        self.journals[process].drop_below({split: offset})

    def check(self, number: int, found: tuple[Any] | None) -> None:
        place = place_of(number)
        kept = self.kept.get(number, [])
        if found is None:
            assert not kept or (not self.keep and place.offset < self.prefixes[place.split]), "lost"
        else:
            assert any(found == (result,) and type(found[0]) is type(result) for result in kept), "never kept"

    @invariant()
    def a_new_process_finds_all(self) -> None:
        journal = self.opened(9)
        for number in range(12):
            self.check(number, journal.find(key_of(number)))
        self.end(journal)

    @invariant()
    def foreign_files_are_left_alone(self) -> None:
        for path, content in self.foreign.items():
            assert path.read_bytes() == content

    def end(self, journal: FileJournal) -> None:
        journal._end_file()
        journal._index.close()

    def teardown(self) -> None:
        journal_files.SEGMENT_BYTES = self.segment_bytes
        all_durable = dict.fromkeys(SPLITS, 100)
        for journal in self.journals.values():
            journal._end_file()
        if not self.keep:
            for journal in self.journals.values():
                journal.drop_below(all_durable)
            left = set(self.folder.iterdir()) - set(self.foreign)
            assert not left, "files that no one needs"
        for journal in self.journals.values():
            self.end(journal)
        shutil.rmtree(self.folder)


class KeptJournalMachine(JournalMachine):
    keep = True


TestDropped = JournalMachine.TestCase
TestKept = KeptJournalMachine.TestCase
TestDropped.settings = TestKept.settings = settings(max_examples=60, stateful_step_count=25)
