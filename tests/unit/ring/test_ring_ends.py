"""What the ends of both rings promise to their callers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tailrace.errors import RingClosed, RingError
from tailrace.ring import layout
from tailrace.ring.pair import PairRing
from tailrace.ring.shared import SharedRing, split_batch
from tailrace.ring.statistics import RingStatistics
from tailrace.testing.processes import wait_until

CAPACITY = 1 << 16
Ring = PairRing | SharedRing


@pytest.fixture(params=[PairRing, SharedRing])
def ring(request: pytest.FixtureRequest) -> Iterator[Ring]:
    with request.param.create("test", CAPACITY) as end:
        yield end
        end.segment.unlink()


@pytest.fixture
def other(ring: Ring) -> Iterator[Ring]:
    with type(ring).attach(ring.segment.path, ring.segment.nonce) as end:
        yield end


@pytest.fixture
def shared() -> Iterator[SharedRing]:
    with SharedRing.create("test", CAPACITY) as end:
        yield end
        end.segment.unlink()


def fill(ring: Ring, size: int = 1000) -> int:
    count = 0
    while ring.put(bytes(size), 0):
        count += 1
    return count


# -- through the ring


def test_records_come_out_in_order_with_their_targets(ring: Ring, other: Ring) -> None:
    for number in range(5000):
        assert ring.put(str(number).encode() * (number % 50), 0, number)
        assert other.get(0) == (number, str(number).encode() * (number % 50))
    assert other.get(0) is None


def test_several_at_once_up_to_a_limit(ring: Ring, other: Ring) -> None:
    for number in range(10):
        assert ring.put(bytes([number]), 0)
    assert [record for _, record in other.get_many(4, 0)] == [bytes([number]) for number in range(4)]
    assert len(other.get_many(100, 0)) == 6


def test_what_can_be_put(ring: Ring) -> None:
    for record in (b"", b"bytes", bytearray(b"array"), memoryview(b"a view")[2:]):
        assert ring.put(record, 0)
        assert ring.get(0) == (0, bytes(record))
    with pytest.raises(TypeError):
        ring.put("text", 0)  # type: ignore[arg-type]
    with pytest.raises((OverflowError, TypeError)):
        ring.put(b"", 0, -1)
    with pytest.raises(OverflowError):
        ring.put(b"", 0, 1 << 32)
    assert ring.get(0) is None


def test_a_target_is_not_taken_for_the_mark_of_a_batch(shared: SharedRing) -> None:
    with pytest.raises(OverflowError, match="number too large: number=2147483648 limit=2147483648"):
        shared.put(b"", 0, layout.BATCH)


def test_a_record_larger_than_the_ring(ring: Ring) -> None:
    limit = layout.largest_payload(CAPACITY)
    for _ in range(3):
        assert ring.put(bytes(limit), 0)
        assert ring.get(0) == (0, bytes(limit))
    with pytest.raises(RingError) as raised:
        ring.put(bytes(limit + 1), 0)
    assert str(raised.value) == f"record too large for the ring: bytes={limit + 1} limit={limit}; make the ring larger?"


def test_a_full_ring_takes_more_when_something_was_read(ring: Ring) -> None:
    count = fill(ring)
    assert count == CAPACITY // layout.record_size(1000)
    for _ in range(3 * count):
        assert ring.get(0) is not None
        assert ring.put(bytes(1000), 0) or ring.get(0) is not None  # the rest before the end may be skipped
    while ring.get(0):
        pass
    assert ring.statistics().held == 0


# -- time


def test_timeouts_are_kept(ring: Ring) -> None:
    for timeout_s in (0, 0.05, 0.25):
        before = time.monotonic()
        assert ring.get(timeout_s) is None
        assert timeout_s <= time.monotonic() - before < timeout_s + 10
    fill(ring)
    for timeout_s in (0, 0.05, 0.25):
        before = time.monotonic()
        assert not ring.put(bytes(1000), timeout_s)
        assert timeout_s <= time.monotonic() - before < timeout_s + 10


def test_a_reader_is_woken(ring: Ring, other: Ring) -> None:
    threading.Timer(0.05, lambda: ring.put(b"here", 0)).start()
    before = time.process_time()
    assert other.get(20) == (0, b"here")
    assert time.process_time() - before < 0.04, "it did not sleep"


def test_a_writer_is_woken(ring: Ring, other: Ring) -> None:
    fill(ring)
    threading.Timer(0.05, lambda: other.get_many(40, 0)).start()
    assert ring.put(bytes(1000), 20)


@pytest.mark.parametrize("waits_first", ["sleep", "bell"])
def test_who_sleeps_is_not_forgotten_for_who_wants_a_bell(shared: SharedRing, waits_first: str) -> None:
    """Each has announced itself in the same word."""
    modes = [layout.MODE_SLEEP, layout.MODE_BELL]
    for mode in modes if waits_first == "sleep" else reversed(modes):
        assert shared.core.want_data(mode)
    sleeper = threading.Thread(target=lambda: shared.core.sleep(0, 20_000_000_000))
    sleeper.start()
    time.sleep(0.05)
    assert shared.core.write(0, b"") == layout.BELL
    sleeper.join(5)
    assert not sleeper.is_alive()
    assert shared.core.write(0, b"") == layout.DONE, "nobody waits any more"


def test_a_bell_for_a_producer_is_not_lost_on_one_who_waits_for_data(shared: SharedRing) -> None:
    """Clearing for another is a reader's first work when it finds nothing to read."""
    turn = layout.OFFSETS["ring_shared.turn"]
    shared.put(bytes(1000), 0)
    assert shared.look(1, 0)
    assert fill(shared)
    assert shared.core.want_room(1000, layout.MODE_BELL)
    with SharedRing.attach(shared.segment.path) as reader:
        shared.segment.memory[turn] = 1  # someone else is busy there
        assert shared.core.release() == layout.DONE
        shared.segment.memory[turn] = 0
        assert not reader.core.want_data(layout.MODE_SLEEP)
        assert reader.core.release() == layout.BELL
        assert reader.core.release() == layout.DONE
    assert not shared.core.want_room(1000, layout.MODE_BELL)


# -- in place


def test_views_are_good_until_they_are_released(ring: Ring, other: Ring) -> None:
    for number in range(3):
        assert ring.put(bytes([number]) * 100, 0, number)
    held = ring.statistics().held
    views = other.look(2, 0)
    views += other.look(2, 0)
    assert [(target, bytes(view)) for target, view in views] == [(number, bytes([number]) * 100) for number in range(3)]
    assert all(view.readonly for _, view in views)
    assert ring.statistics().held == held
    other.release()
    assert ring.statistics().held == 0


def test_a_view_that_outlives_its_ring_is_harmless() -> None:
    with PairRing.create("test", CAPACITY) as ring:
        ring.segment.unlink()
        ring.put(b"still here", 0)
        ((_, view),) = ring.look(1, 0)
    assert bytes(view) == b"still here"


def test_an_end_of_a_shared_ring_holds_so_many_at_once(shared: SharedRing) -> None:
    for _ in range(layout.VIEWS + 1):
        assert shared.put(b"", 0)
    assert len(shared.look(1000, 0)) == layout.VIEWS
    assert shared.look(1, 0) == []
    shared.release()
    assert len(shared.look(1, 0)) == 1


# -- batches


@pytest.mark.parametrize("parts", [[], [b""], [b"a", b"", b"ccc"], [bytes(1000)] * 20])
def test_a_batch_is_one_record(shared: SharedRing, parts: list[bytes]) -> None:
    assert shared.put(b"before", 0, 1)
    assert shared.put_batch(parts, 0, 2)
    assert shared.statistics().records == 2
    assert shared.get_tuples(2, 0) == [(1, b"before"), *((2, part) for part in parts)]


def test_a_batch_that_makes_no_sense(shared: SharedRing) -> None:
    with pytest.raises(TypeError, match="a batch holds bytes"):
        shared.put_batch(["text"], 0)  # type: ignore[list-item]
    with pytest.raises(RingError, match=r"record too large for the ring: bytes=40008 limit=32752"):
        shared.put_batch([bytes(20_000)] * 2, 0)
    for broken in (b"\1", b"\5\0\0\0abc", b"\0\0\0\0\0"):
        with pytest.raises(RingError, match=r"corrupted batch: bytes=\d+ needed=\d+; did something else write there\?"):
            split_batch(broken)


# -- the end


def test_a_closed_ring_is_drained_first(ring: Ring, other: Ring) -> None:
    ring.put(b"last", 0)
    other.close()
    with pytest.raises(RingClosed, match=r"^the ring is closed$"):
        ring.put(b"too late", 0)
    assert other.get(0) == (0, b"last")
    with pytest.raises(RingClosed, match=r"^the ring is closed$"):
        other.get(10)


def test_closing_wakes_who_waits(ring: Ring, other: Ring) -> None:
    threading.Timer(0.05, ring.close).start()
    with pytest.raises(RingClosed):
        other.get(20)


def test_closing_wakes_a_writer(ring: Ring, other: Ring) -> None:
    fill(ring)
    threading.Timer(0.05, other.close).start()
    with pytest.raises(RingClosed):
        ring.put(bytes(1000), 20)


def test_a_closed_ring_is_not_drained_while_someone_else_holds_a_record(shared: SharedRing) -> None:
    with SharedRing.attach(shared.segment.path) as reader:
        shared.put(b"", 0)
        assert len(reader.look(1, 0)) == 1
        shared.close()
        assert shared.get(0.05) is None
        reader.release()
        with pytest.raises(RingClosed):
            shared.get(0.05)


def test_all_places_taken(shared: SharedRing) -> None:
    ends = [SharedRing(shared.segment) for _ in range(layout.SLOTS - 1)]
    with pytest.raises(RingError, match=rf"^all places at the ring are taken: limit=64 path={shared.segment.path}$"):
        SharedRing(shared.segment)
    ends[7].core.leave()
    ends[7] = SharedRing(shared.segment)
    for number, end in enumerate(ends):
        assert end.put(b"", 0, number)
    assert [target for target, _ in shared.get_many(100, 0)] == list(range(len(ends)))


def test_who_has_left_can_do_nothing(shared: SharedRing) -> None:
    shared.core.leave()
    for call in (lambda: shared.core.write(0, b""), lambda: shared.core.read(1), lambda: shared.core.want_data(1)):
        with pytest.raises(ValueError, match=r"^not registered$"):
            call()
    assert shared.core.register()


# -- figures


def test_statistics(ring: Ring, other: Ring) -> None:
    assert ring.statistics() == RingStatistics(0, 0, 0, 0, 0, 0, 0)
    ring.put(bytes(100), 0)
    ring.put(bytes(50), 0)
    assert ring.statistics() == RingStatistics(2, 150, 0, 0, 0, high_water=208, held=208)
    other.get_many(2, 0)
    wait_until(lambda: other.get(0.01) or other.statistics().consumer_sleeps)  # a look for the dead may take as long
    found = other.statistics()
    assert (found.records, found.held, found.high_water, found.consumer_sleeps) == (2, 0, 208, 1)
    fill(ring)
    wait_until(lambda: ring.put(bytes(1000), 0.01) or ring.statistics().producer_waits)
    assert ring.statistics().producer_waits == 1
    assert ring.statistics().high_water > CAPACITY - 2000
