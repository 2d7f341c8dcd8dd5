"""Every connector obeys the law of its interface, at every step and after every crash."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tailrace.connector import Sink
from tailrace.runtime.connectors import at_rate, from_iterable, from_lines, to_jsonl, to_list, to_parquet
from tailrace.testing.connectors import SinkTrial, check_crashes, check_runs, check_sink, check_source, check_zombies


def squares(split: int, splits: int) -> Iterable[int]:
    return (n * n for n in range(split, 11, splits))


def read_jsonl(sink: Any) -> list[Any]:
    return [json.loads(line) for path in sink.path.glob("part-*.jsonl") for line in path.read_text().splitlines()]


def read_parquet(sink: Any) -> list[Any]:
    return [row for path in sink.path.glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]


def new_places(tmp_path: Path, make: Callable[[Path], Sink]) -> Callable[[], Sink]:
    numbers = itertools.count()
    return lambda: make(tmp_path / str(next(numbers)))


@pytest.mark.parametrize("values", [squares, list(range(11)), range(11), tuple("abcdefghijk")])
def test_iterables_obey_the_law_of_readers(values: Any) -> None:
    assert len(check_source(from_iterable(values), tasks=3)) == 11
    assert len(check_source(at_rate(values, 1000.0), tasks=3)) == 11


def test_lines_obey_the_law_of_readers(tmp_path: Path) -> None:
    text = "one\n\nzwölf 🌊\r\n" + "x" * 200 + "\n\nlast"
    (tmp_path / "a.txt").write_bytes(text.encode())
    with gzip.open(tmp_path / "b.txt.gz", "wb") as file:
        file.write(text.encode())
    records = check_source(from_lines(tmp_path / "*"))
    assert [record.value for record in records] == ["one", "", "zwölf 🌊", "x" * 200, "", "last"] * 2


def test_jsonl_obeys_the_law_of_committing_writers(tmp_path: Path) -> None:
    check_sink(new_places(tmp_path, to_jsonl), read_jsonl)


def test_parquet_obeys_the_law_of_committing_writers(tmp_path: Path) -> None:
    check_sink(new_places(tmp_path, to_parquet), read_parquet)


def test_list_obeys_the_law_of_committing_writers() -> None:
    check_sink(to_list, lambda sink: sink.values)


class RenamesDataFirst:
    """A sink with the order of the two renames confused: rows show before they are committed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.committing = True

    def open(self, context: Any) -> Any:
        self.path.mkdir(parents=True, exist_ok=True)
        return NaiveWriter(self.path)


class NaiveWriter:
    commit_every_ns = 1
    full = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Any] = []

    def write(self, value: Any) -> None:
        self.rows.append(value)

    def recover(self, prefixes: Any) -> list[Any]:
        entries = [json.loads(p.read_text()) for p in sorted(self.path.glob("entries-*"))]
        from tailrace.connector import Entry

        return [Entry(*entry) for group in entries for entry in group if entry[1] >= prefixes.get(entry[0], 0)]

    def commit(self, entries: Any) -> None:
        for kind, content in (
            ("part", "".join(json.dumps(r) + "\n" for r in self.rows)),
            ("entries", json.dumps(entries)),
        ):
            number = len(list(self.path.glob(f"{kind}-*")))
            staged = self.path / f".{kind}"
            staged.write_text(content)
            staged.rename(self.path / f"{kind}-{number}.jsonl")
        self.rows = []

    def forget(self, prefixes: Any) -> None: ...

    def close(self) -> None: ...


def test_the_check_finds_a_sink_that_is_not_atomic(tmp_path: Path) -> None:
    places = new_places(tmp_path, RenamesDataFirst)
    with pytest.raises(AssertionError, match="rows differ"):
        check_crashes(lambda: SinkTrial(places(), read_jsonl, lambda n: n))


def test_the_check_finds_a_sink_without_fence(tmp_path: Path) -> None:
    places = new_places(tmp_path, RenamesDataFirst)
    with pytest.raises(AssertionError):
        check_zombies(lambda: SinkTrial(places(), read_jsonl, lambda n: n))


def test_the_check_finds_a_sink_that_mixes_runs(tmp_path: Path) -> None:
    places = new_places(tmp_path, RenamesDataFirst)
    with pytest.raises(AssertionError, match=r"another run changed what is known: offsets=\[0, 0, 1, 1\], are runs"):
        check_runs(lambda: SinkTrial(places(), read_jsonl, lambda n: n))


class Forgetful:
    """A source whose reader does not go to the offset it is given."""

    replayable = True

    def splits(self, tasks: int) -> list[str]:
        return ["0/1"]

    def open(self, start: Any) -> Any:
        from tailrace.connector import SplitStart

        return from_iterable([1, 2, 3]).open(SplitStart("0/1"))


def test_the_check_finds_a_source_that_does_not_seek() -> None:
    with pytest.raises(AssertionError, match="tail differs: split=0/1 offset=1"):
        check_source(Forgetful())
