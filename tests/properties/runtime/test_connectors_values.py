"""Fingerprints, manifests and files give back what went in."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connector import Entry, SinkContext, SplitStart
from tailrace.errors import NotRepeatable, TailraceError
from tailrace.runtime.connectors import at_rate, from_iterable, from_lines, to_jsonl
from tailrace.runtime.connectors.commits.manifest import Manifest, decode, encode
from tailrace.runtime.connectors.fingerprint import fingerprint, matches
from tailrace.testing.connectors import check_source

plain: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
entries = st.lists(
    st.builds(
        Entry, st.sampled_from(["0/2", "1/2", "/a b/ü.txt"]), st.integers(0, 2**63 - 1), st.integers(0, 2**64 - 1)
    )
)


@given(plain)
def test_a_value_matches_its_own_fingerprint(value: Any) -> None:
    assert matches(fingerprint(value), value)


@given(plain, plain)
def test_a_fingerprint_tells_values_apart(one: Any, other: Any) -> None:
    if fingerprint(one) != fingerprint(other) and one != other:
        assert not matches(fingerprint(one), other)


@given(entries, st.integers(0, 2**40))
def test_a_manifest_gives_its_entries_back(found: list[Entry], rows: int) -> None:
    manifest = Manifest("job", "part-1", rows, found)
    assert decode(encode(manifest), Path("m")) == manifest
    for split, newest in manifest.newest().items():
        assert newest == max(entry.offset for entry in found if entry.split == split)


@given(entries, st.data())
def test_a_manifest_with_any_damage_is_refused(found: list[Entry], data: st.DataObject) -> None:
    whole = bytearray(encode(Manifest("job", "part-1", len(found), found)))
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[place:]
    else:
        whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(TailraceError, match="manifest is damaged: file=m"):
        decode(bytes(whole), Path("m"))


@given(st.lists(st.text()), st.integers(1, 4))
def test_splits_of_a_sequence_are_a_partition(values: list[str], tasks: int) -> None:
    assert sorted(record.value for record in check_source(from_iterable(values), tasks=tasks)) == sorted(values)


@given(st.lists(st.integers(), min_size=1), st.data())
def test_a_changed_record_before_the_offset_is_noticed(values: list[int], data: st.DataObject) -> None:
    offset = data.draw(st.integers(1, len(values)))
    changed = list(values)
    changed[offset - 1] += 1
    start = SplitStart("0/1", offset, fingerprint(values[offset - 1]))
    from_iterable(values).open(start)
    with pytest.raises(NotRepeatable):
        from_iterable(changed).open(start)


@given(st.lists(st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=["Cs"]))), st.booleans())
def test_lines_come_back_from_any_file(lines: list[str], newline_at_end: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a"
        whole = "\n".join(lines) + ("\n" if newline_at_end and lines else "")
        path.write_bytes(whole.encode())
        expected = whole.removesuffix("\n").split("\n") if whole else []
        assert [record.value for record in check_source(from_lines(path))] == expected


@given(
    per_second=st.floats(0.01, 1e6),
    splits=st.integers(1, 5),
    polls=st.lists(st.integers(0, 10**9), min_size=1, max_size=20),
    crash=st.integers(0, 20),
)
def test_records_come_when_due_and_keep_their_times_over_a_restart(
    per_second: float, splits: int, polls: list[int], crash: int
) -> None:
    source = at_rate(range(100_000_000), per_second)
    began = 10**12
    for index in range(splits):
        split = f"{index}/{splits}"
        reader = source.open(SplitStart(split))
        reader.poll(0, began)
        count = 0
        now = began
        for number, wait in enumerate(polls):
            now += wait
            if number == crash:
                reader = source.open(SplitStart(split, count, elapsed_ns=now - began))
            records = reader.poll(50, now)
            for record in records:
                assert record.offset == count
                assert record.due_ns == began + int((count * splits + index) * (10**9 / per_second))
                assert record.due_ns <= now
                count += 1
            # Fewer than asked for means that the next one is not due, and only then.
            assert len(records) == 50 or reader.ready_ns > now


@settings(max_examples=30)
@given(st.lists(st.lists(json_values, min_size=1), max_size=4))
def test_any_json_comes_back_from_files(commits: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        writer = to_jsonl(name).open(SinkContext("out", 0, 1, 1, "job", lambda *_: None))
        for number, rows in enumerate(commits):
            for row in rows:
                writer.write(row)
            writer.commit([Entry("s", number * 1000 + n, n) for n in range(len(rows))])
        read = [
            json.loads(line) for p in sorted(Path(name).glob("part-*")) for line in p.read_text().split("\n") if line
        ]
        assert read == [row for rows in commits for row in rows]
