"""What sources do beyond their law: errors that name the cause, and checks after a restart."""

from __future__ import annotations

import gzip
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.connector import Record, SplitStart
from tailrace.errors import NotRepeatable, OptionError, TailraceError
from tailrace.runtime.connectors import at_rate, from_iterable, from_lines
from tailrace.runtime.connectors.fingerprint import LIMIT, describe, fingerprint, matches
from tailrace.runtime.connectors.read_ahead import LATER_NS, MOST
from tailrace.testing.processes import wait_until


def numbers(split: int, splits: int) -> Iterator[int]:
    return iter(range(split, 10, splits))


def no_arguments() -> list[int]:
    return [1]


def nothing(split: int, splits: int) -> Any:
    return None


def test_an_iterable_is_read_in_batches_to_its_end() -> None:
    reader = from_iterable(numbers).open(SplitStart("1/2"))
    assert reader.poll(2, 0) == [Record(0, 0, 1), Record(1, 0, 3)]
    assert not reader.done
    assert isinstance(reader.poll(1, 0)[0], Record)
    assert [record.value for record in reader.poll(9, 0)] == [7, 9]
    assert reader.done
    assert reader.poll(9, 0) == []


def test_splits_are_named_by_index_and_count() -> None:
    assert from_iterable(numbers).splits(3) == ["0/3", "1/3", "2/3"]
    assert at_rate(numbers, 1).splits(1) == ["0/1"]


@pytest.mark.parametrize("name", ["0", "3/3", "x/2", "1/", "-1/2", "/tmp/a"])
def test_a_split_of_another_source_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=re.escape(f"not the name of a split: split={name!r}, was the checkpoint")):
        from_iterable(numbers).open(SplitStart(name))


@pytest.mark.parametrize("make", [from_iterable, lambda values: at_rate(values, 5)])
def test_what_cannot_be_split_is_refused_at_construction(make: Callable[[Any], Any]) -> None:
    with pytest.raises(OptionError, match=re.escape("does not take (split, splits)")) as caught:
        make(no_arguments)
    assert "no_arguments() -> list[int], did you forget the two arguments" in str(caught.value).replace("'", "")
    with pytest.raises(OptionError, match=r"not a function or a sequence: .* is it an iterator that can be read only"):
        make(iter([1, 2]))


def test_a_function_that_returns_nothing_is_named() -> None:
    with pytest.raises(OptionError, match=r"did not return an iterable: returned=None type=NoneType, did you forget"):
        from_iterable(nothing).open(SplitStart("0/1"))


def test_another_record_than_before_is_not_repeatable() -> None:
    source = from_iterable(numbers)
    assert [r.value for r in source.open(SplitStart("0/1", 3, fingerprint(2))).poll(2, 0)] == [3, 4]
    with pytest.raises(NotRepeatable) as caught:
        source.open(SplitStart("0/1", 3, fingerprint("two")))
    assert str(caught.value) == (
        "source gave something else when read again: split=0/1 offset=2 before='two' now=2, "
        "is the function given to from_iterable repeatable?"
    )


@pytest.mark.parametrize("values", [numbers, list(range(10))])
@pytest.mark.parametrize("last", [None, fingerprint(10)])
def test_an_end_before_the_offset_is_not_repeatable(values: Any, last: bytes | None) -> None:
    assert from_iterable(values).open(SplitStart("0/1", 10)).poll(1, 0) == []
    with pytest.raises(NotRepeatable, match=r"offset=10 before=(10|a record) now=the end, is the function"):
        from_iterable(values).open(SplitStart("0/1", 11, last))


def test_equal_values_with_other_pickles_are_the_same() -> None:
    assert matches(fingerprint(1), 1.0)
    assert matches(fingerprint(math.nan), math.nan)
    assert not matches(fingerprint([1]), [2])


def test_large_values_are_kept_as_digests_where_that_is_safe() -> None:
    text = "x" * LIMIT
    assert len(fingerprint(text)) < 50
    assert matches(fingerprint(text), text)
    assert not matches(fingerprint(text), text[:-1] + "y")
    assert "sha256" in describe(fingerprint(text))
    assert fingerprint({str(n) for n in range(LIMIT)}) == b""  # the order of a set differs between processes


def test_what_cannot_be_pickled_matches_anything() -> None:
    assert fingerprint(lambda: 0) == b""
    assert matches(b"", object())


def test_a_generator_is_closed_with_its_reader() -> None:
    closed = []

    def values(split: int, splits: int) -> Iterable[int]:
        try:
            yield from range(10)
        finally:
            closed.append(split)

    reader = from_iterable(values).open(SplitStart("0/1"))
    reader.poll(1, 0)
    reader.close()
    assert closed == [0]


def test_splits_at_a_rate_take_turns() -> None:
    readers = [at_rate(numbers, 4).open(SplitStart(f"{n}/2")) for n in range(2)]
    assert list(readers[0].poll(9, 0)) == [Record(0, 0, 0)]
    assert list(readers[1].poll(9, 0)) == []
    assert [reader.ready_ns for reader in readers] == [500_000_000, 250_000_000]
    assert readers[1].poll(9, 1_000_000_000) == [Record(0, 250_000_000, 1), Record(1, 750_000_000, 3)]


def test_a_reader_at_a_rate_is_done_after_its_last_record() -> None:
    reader = at_rate([7], 1).open(SplitStart("0/1"))
    assert reader.ready_ns == 0
    assert reader.poll(5, 100) == [Record(0, 100, 7)]
    assert not reader.done
    assert reader.poll(5, reader.ready_ns) == []
    assert reader.done


def test_a_restart_keeps_due_times() -> None:
    source = at_rate(range(100), 10)
    before = source.open(SplitStart("0/1"))
    before.poll(0, 5_000)
    whole = before.poll(100, 5_000 + 9_900_000_000)
    after = source.open(SplitStart("0/1", 40, elapsed_ns=7_000_000_000))
    assert after.poll(100, 5_000 + 7_000_000_000) == whole[40:71]
    assert after.poll(100, 5_000 + 9_900_000_000) == whole[71:]


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf, True, "5"])
def test_a_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(OptionError, match=f"rate must be positive: per_second={rate!r}, did you mean from_iterable"):
        at_rate(numbers, rate)


def test_no_file_is_an_error_on_the_driver(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no file matches: glob=.*\*\.txt, is the path right on the driver\?"):
        from_lines(tmp_path / "*.txt").splits(1)
    with pytest.raises(OptionError, match=r"did you mean .*/\*\?"):
        from_lines(tmp_path).splits(1)


def test_a_pattern_that_no_file_system_can_spell_is_refused() -> None:
    with pytest.raises(OptionError, match=r"not a name of files: glob=.*, is there half a character in it"):
        from_lines("\ud800*.txt")


def test_files_are_sorted_absolute_and_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "a.txt", ".hidden.txt"):
        (tmp_path / name).write_text("x\n")
    monkeypatch.chdir(tmp_path)
    source = from_lines("*.txt")
    monkeypatch.chdir("/")
    assert source.splits(5) == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]


def test_a_file_that_a_pattern_finds_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.txt").write_text("x\n")
    assert from_lines(tmp_path / "**" / "**" / "*.txt").splits(1) == [str(tmp_path / "a" / "b" / "x.txt")]


@pytest.mark.parametrize("pattern", [None, 5, ["a"]])
def test_a_pattern_is_a_path(pattern: Any) -> None:
    with pytest.raises(OptionError, match=r"not a pattern: from_lines=.* type=\w+, did you mean a path such as 'logs/"):
        from_lines(pattern)


def test_bytes_that_are_not_text_name_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ok\n\xff\xfe\n")
    reader = from_lines(path).open(SplitStart(str(path)))
    assert reader.poll(1, 0) == [Record(0, 0, "ok")]
    with pytest.raises(TailraceError, match=f"line is not utf-8: file={path} offset=3 .* is the file binary"):
        reader.poll(1, 0)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_changed_is_not_repeatable(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    opener: Any = gzip.open if suffix else open
    with opener(path, "wb") as file:
        file.write(b"one\ntwo\n")
    source = from_lines(path)
    assert source.open(SplitStart(str(path), 8, fingerprint("two"))).poll(1, 0) == []
    with pytest.raises(NotRepeatable, match=f"file is shorter than what was read of it: file={path} offset=9, was it"):
        source.open(SplitStart(str(path), 9))
    with pytest.raises(NotRepeatable, match=f"another line than before: file={path} offset=4 before='2' now=b'two"):
        source.open(SplitStart(str(path), 8, fingerprint("2")))


def test_a_line_longer_than_a_step_back_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a"
    long = "x" * 200_000
    path.write_text(f"first\n{long}\nlast\n")
    reader = from_lines(path).open(SplitStart(str(path), 100_000, fingerprint(long)))
    assert [record.value for record in reader.poll(9, 0)] == ["last"]


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-10])
    reader = from_lines(path).open(SplitStart(str(path)))
    with pytest.raises(TailraceError, match=f"gzip file is damaged: file={path} .* was it copied completely"):
        reader.poll(2000, 0)


def test_a_rate_that_goes_on_from_a_checkpoint_does_not_wait_for_what_was_read() -> None:
    reader = at_rate(range(1000), 10).open(SplitStart("0/1", 500))
    assert [record.offset for record in reader.poll(9, 1_000)] == [500]
    assert reader.ready_ns == 1_000 + 100_000_000


class Gate:
    """A generator that gives two records, and the others when it is let go on."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.closed = False

    def __call__(self, split: int, splits: int) -> Iterator[int]:
        try:
            yield from (0, 1)
            assert self.open.wait(30)
            yield 2
        finally:
            self.closed = True


@pytest.mark.parametrize("make", [from_iterable, lambda values: at_rate(values, 1e6)])
def test_a_generator_that_waits_keeps_nothing_back_and_nobody_up(make: Callable[[Any], Any]) -> None:
    gate, woken = Gate(), threading.Event()
    reader = make(gate).open(SplitStart("0/1"))
    reader.wake_by(woken.set)
    assert reader.ready_ns == 0
    taken = [*reader.poll(256, 0)]
    wait_until(lambda: bool(taken.extend(reader.poll(256, 10**12)) or len(taken) == 2), 30, "what was given")
    woken.clear()
    assert [*reader.poll(256, 10**12)] == [] and reader.ready_ns == LATER_NS and not reader.done
    gate.open.set()
    assert woken.wait(30)
    wait_until(lambda: bool(taken.extend(reader.poll(256, 10**12)) or reader.done), 30, "the end")
    assert [(record.offset, record.value) for record in taken] == [(0, 0), (1, 1), (2, 2)]
    reader.close()


def test_a_generator_is_read_ahead_as_far_as_there_is_room() -> None:
    drawn = []

    def values(split: int, splits: int) -> Iterator[int]:
        for number in range(10 * MOST):
            drawn.append(number)
            yield number

    reader = from_iterable(values).open(SplitStart("0/1"))
    taken = [record.value for record in reader.poll(1, 0)]
    wait_until(lambda: len(drawn) >= MOST, 30, "a full buffer")
    assert len(drawn) <= MOST + len(taken) + 1
    while not reader.done:
        taken += [record.value for record in reader.poll(100, 0)]
    assert taken == list(range(10 * MOST))


def test_a_generator_that_never_goes_on_is_left_alone() -> None:
    gate = Gate()
    reader = from_iterable(gate).open(SplitStart("0/1"))
    wait_until(lambda: bool(reader.poll(9, 0)), 30, "a record")
    with pytest.raises(
        TailraceError, match=r"an iterator still waits for its next record, and is left alone: split=0/1"
    ):
        reader.close()
    gate.open.set()
    wait_until(lambda: gate.closed, 30, "the end of the generator")


def test_what_a_generator_raises_comes_after_what_it_gave() -> None:
    def values(split: int, splits: int) -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    reader = from_iterable(values).open(SplitStart("0/1"))
    wait_until(lambda: bool(reader.poll(9, 0)), 30, "a record")
    with pytest.raises(ValueError, match="no more"):
        wait_until(lambda: bool(reader.poll(9, 0)), 30, "the error")


def test_a_generator_that_goes_on_is_checked_where_it_is_read() -> None:
    def values(split: int, splits: int) -> Iterator[int]:
        yield from range(5)

    reader = from_iterable(values).open(SplitStart("0/1", 3, fingerprint("two")))
    with pytest.raises(NotRepeatable, match=r"offset=2 before='two' now=2"):
        wait_until(lambda: bool(reader.poll(9, 0)), 30, "the error")


@pytest.mark.parametrize("values", [range(5), [1], "ab", (1,), itertools.count(), {1: 2}])
def test_what_lies_in_memory_has_no_thread(values: Any) -> None:
    before = threading.active_count()
    reader = from_iterable(lambda split, splits: values).open(SplitStart("0/1"))
    assert len(reader.poll(1, 0)) == 1 and reader.ready_ns == 0 and threading.active_count() == before
    reader.close()
