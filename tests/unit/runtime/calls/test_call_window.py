"""The window slides over batches, keeps its bounds, and stops when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tailrace.runtime.calls.outcome import Outcome
from tailrace.runtime.calls.window import Window
from tailrace.testing.processes import wait_until

SOON_S = 10.0


class Service:
    """A caller whose calls end when they are told to, or at once."""

    def __init__(self, answer: Callable[[int], Awaitable[Any]] | None = None) -> None:
        self.started: list[int] = []
        self.cancelled: list[int] = []
        self.under_way = self.most = 0
        self.closed = False
        self._answer = answer

    async def open(self) -> Service:
        return self

    async def call(self, args: tuple[Any, ...], key: bytes | None = None) -> Outcome:
        (number,) = args
        self.started.append(number)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            value = number if self._answer is None else await self._answer(number)
            return Outcome(value=(value, key), attempts=1)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        self.closed = True


def batches(*sizes: int) -> Iterator[list[tuple[int]]]:
    number = 0
    for size in sizes:
        yield [(number + place,) for place in range(size)]
        number += size


def window(service: Service, source: Iterator[list[tuple[int]]], **options: Any) -> Window:
    return Window(source, service.open, **{"concurrency": 4, "ordered": False, **options})


def values(several: Iterator[list[Any]]) -> list[int]:
    return [called.outcome.value[0] for some in several for called in some]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("sizes", [(), (0,), (1,), (3, 0, 5, 1), (1,) * 30, (2000, 1)])
def test_all_rows_are_called_once(sizes: tuple[int, ...], ordered: bool) -> None:
    service = Service()
    got = values(window(service, batches(*sizes), ordered=ordered).results())
    assert (got if ordered else sorted(got)) == list(range(sum(sizes)))
    assert sorted(service.started) == list(range(sum(sizes)))
    assert service.most <= 4
    assert service.closed


def test_a_slow_call_holds_up_nothing_but_itself() -> None:
    """Calls of later batches go on while one of the first batch hangs."""
    released = threading.Event()

    async def answer(number: int) -> int:
        while number == 0 and not released.is_set():
            await asyncio.sleep(0.001)
        return number

    service = Service(answer)
    results = window(service, batches(5, 5, 5)).results()
    got: list[int] = []
    while len(got) < 14:
        got += [called.row for called in next(results)]
    assert sorted(got) == list(range(1, 15))
    released.set()
    assert values(results) == [0]


def test_order_is_kept_behind_a_slow_call() -> None:
    async def answer(number: int) -> int:
        await asyncio.sleep(0.05 if number % 7 == 0 else 0)
        return number

    assert values(window(Service(answer), batches(10, 10, 1), ordered=True).results()) == list(range(21))


def test_results_come_while_the_source_is_slow() -> None:
    more = threading.Event()

    def source() -> Iterator[list[tuple[int]]]:
        yield [(0,), (1,)]
        assert more.wait(SOON_S)
        yield [(2,)]

    results = window(Service(), source()).results()
    first: list[int] = []
    while len(first) < 2:
        first += [called.row for called in next(results)]
    assert sorted(first) == [0, 1]
    more.set()
    assert values(results) == [2]


@pytest.mark.parametrize("ordered", [False, True])
def test_no_more_is_started_than_there_is_room_for(ordered: bool) -> None:
    service = Service()
    results = window(service, batches(*[50] * 20), ordered=ordered, buffer=10).results()
    first = next(results)
    wait_until(lambda: len(service.started) >= 14, SOON_S, "calls to go on")
    assert len(service.started) <= 14 + len(first)
    assert sum(len(some) for some in results) + len(first) == 1000


def test_no_more_is_read_than_two_batches_ahead() -> None:
    read: list[int] = []

    def source() -> Iterator[list[tuple[int]]]:
        for number, batch in enumerate(batches(*[50] * 20)):
            read.append(number)
            yield batch

    results = window(Service(), source(), buffer=10).results()
    next(results)
    wait_until(lambda: len(read) >= 2, SOON_S, "the reader")
    assert len(read) <= 3
    results.close()


def test_closing_cancels_all_calls_and_starts_none() -> None:
    async def answer(number: int) -> int:
        if number:
            await asyncio.sleep(60)
        return number

    service = Service(answer)
    results = window(service, batches(50, 50)).results()
    assert [called.row for called in next(results)] == [0]
    wait_until(lambda: service.under_way == 4, SOON_S, "calls to be under way")
    results.close()
    assert service.closed
    assert sorted(service.cancelled) == [1, 2, 3, 4]
    assert len(service.started) == 5


def test_an_error_of_the_source_is_raised() -> None:
    def source() -> Iterator[list[tuple[int]]]:
        yield [(0,)]
        raise OSError("the pipe broke")

    async def answer(number: int) -> int:
        await asyncio.sleep(60)
        return number

    service = Service(answer)
    with pytest.raises(OSError, match="the pipe broke"):
        list(window(service, source()).results())
    assert service.closed


def test_what_escapes_a_caller_is_raised() -> None:
    """A journal that cannot keep a result is no failure of the call: it ends the task."""

    async def answer(number: int) -> int:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        list(window(Service(answer), batches(10)).results())


def test_what_opening_raises_is_raised() -> None:
    async def broken() -> Service:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        list(Window(batches(1), broken, concurrency=1, ordered=False).results())


def hanging(released: threading.Event) -> tuple[Service, Callable[[], Any]]:
    """A service whose first call leaves a thread of asyncio behind, which hangs."""

    async def answer(number: int) -> int:
        if number == 0:
            try:
                await asyncio.wait_for(asyncio.to_thread(released.wait, 60), 0.01)
            except TimeoutError:
                return -1
        return number

    return Service(answer), released.set


@pytest.mark.parametrize("ordered", [False, True])
def test_a_thread_that_hangs_does_not_hold_up_the_end(ordered: bool) -> None:
    service, release = hanging(threading.Event())
    got: list[int] = []
    reading = threading.Thread(
        target=lambda: got.extend(values(window(service, batches(5), ordered=ordered).results()))
    )
    reading.start()
    reading.join(SOON_S)
    ended = not reading.is_alive()
    release()
    reading.join(SOON_S)
    assert ended, "the task waits for the thread"
    assert sorted(got) == [-1, 1, 2, 3, 4]
    assert service.closed


def test_a_thread_that_hangs_does_not_hold_up_closing() -> None:
    service, release = hanging(threading.Event())
    results = window(service, batches(*[5] * 1000), buffer=10).results()
    assert next(results)
    closing = threading.Thread(target=results.close)
    closing.start()
    closing.join(SOON_S / 2)
    closed = not closing.is_alive()
    release()
    closing.join(SOON_S + 2)
    assert closed, "closing waits for the thread"
    assert service.closed


def test_keys_are_made_of_arguments() -> None:
    results = window(Service(), batches(3), key_of=lambda args: bytes([args[0]]), ordered=True).results()
    assert [called.outcome.value for some in results for called in some] == [(0, b"\0"), (1, b"\1"), (2, b"\2")]


def test_a_row_may_have_no_key() -> None:
    results = window(Service(), batches(2), key_of=lambda args: None if args[0] else b"\0", ordered=True).results()
    assert [called.outcome.value for some in results for called in some] == [(0, b"\0"), (1, None)]
