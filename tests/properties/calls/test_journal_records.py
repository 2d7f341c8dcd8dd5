"""A file of records that is cut or changed anywhere gives the whole records before that place, and no garbage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.calls.journal_keys import Place, tuple_key
from tailrace.calls.journal_records import HEADER_BYTES, Damaged, Header, encode_record, scan

RESULTS = st.lists(st.binary(max_size=40), min_size=1, max_size=5)


def key_of(number: int) -> bytes:
    return tuple_key("score", Place(9, number), 1, number)


def read(data: bytes, chunk: int | None = None, start: int = 0) -> list[tuple[int, Header]]:
    part = data[start : None if chunk is None else start + chunk]
    found: list[tuple[int, Header]] = []
    try:
        found.extend(scan(part, start, len(data)))
    except Damaged:
        pass
    return found


def results_of(data: bytes) -> list[tuple[bytes, bytes]]:
    out = []
    for position, header in read(data):
        result = data[position + HEADER_BYTES :][: header.length]
        if header.matches(result):
            out.append((header.key, result))
    return out


@given(RESULTS, st.data())
def test_a_file_cut_at_any_byte_has_the_whole_records_before_it(results: list[bytes], data: st.DataObject) -> None:
    records = [encode_record(key_of(number), result) for number, result in enumerate(results)]
    whole = b"".join(records)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [len(b"".join(records[: n + 1])) for n in range(len(records))]
    kept = [(key_of(n)[:16], results[n]) for n, end in enumerate(ends) if end <= cut]
    assert results_of(whole[:cut]) == kept


@given(RESULTS, st.data())
def test_a_changed_byte_never_gives_a_result_that_was_not_kept(results: list[bytes], data: st.DataObject) -> None:
    records = [encode_record(key_of(number), result) for number, result in enumerate(results)]
    changed = bytearray(b"".join(records))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    kept = {(key_of(n)[:16], result) for n, result in enumerate(results)}
    assert set(results_of(bytes(changed))) <= kept


@given(st.binary(max_size=200))
def test_garbage_has_no_records(garbage: bytes) -> None:
    assert results_of(garbage) == []


@given(RESULTS, st.integers(HEADER_BYTES, 100))
def test_results_are_skipped_without_being_read(results: list[bytes], chunk: int) -> None:
    whole = b"".join(encode_record(key_of(number), result) for number, result in enumerate(results))
    found: list[bytes] = []
    start = 0
    while part := read(whole, chunk, start):
        found += [header.key for _, header in part]
        position, header = part[-1]
        assert header.place == Place(9, len(found) - 1)
        start = position + HEADER_BYTES + header.length
    assert found == [key_of(number)[:16] for number in range(len(results))]
