"""Callers that share a journal make each call once, also if it comes to two of them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tailrace as tr
from tailrace.calls.journal_keys import journal_key
from tailrace.runtime.calls import caller as caller_module
from tailrace.runtime.calls.caller import Caller
from tailrace.runtime.calls.journal_files import open_journal

KEY = journal_key("a")


class Service:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer = asyncio.Event()
        self.error: Exception | None = None

    async def ask(self, value: Any) -> Any:
        self.asked.append(value)
        await self.answer.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return f"answer to {value}"


def callers(folder: Path, service: Service, count: int = 2) -> list[Caller]:
    def one(number: int) -> Caller:
        journal = open_journal(folder, f"ask-{number}", owner="function ask")
        calls = tr.Calls(timeout_s=0.5)
        return Caller(service.ask, calls, asynchronous=True, name="ask", rng=Random(number), journal=journal)

    return [one(number) for number in range(count)]


def run(folder: Path, steps: Callable[[Service, Caller, Caller], Any]) -> Service:
    async def all_steps() -> Service:
        service = Service()
        one, other = callers(folder, service)
        await asyncio.wait_for(steps(service, one, other), 30)
        await one.close()
        await other.close()
        return service

    return asyncio.run(all_steps())


def test_a_call_that_is_under_way_is_waited_for(tmp_path: Path) -> None:
    async def steps(service: Service, one: Caller, other: Caller) -> None:
        made = [asyncio.ensure_future(caller.call((n,), KEY)) for n, caller in enumerate((one, other, one))]
        await asyncio.sleep(0.05)
        assert service.asked == [0]
        service.answer.set()
        outcomes = [await call for call in made]
        assert [outcome.value for outcome in outcomes] == ["answer to 0"] * 3
        assert [outcome.found for outcome in outcomes] == [False, True, True]
        assert (one.figures.found, other.figures.found) == (1, 1)

    assert run(tmp_path, steps).asked == [0]


def test_a_call_that_failed_elsewhere_is_made_here(tmp_path: Path) -> None:
    async def steps(service: Service, one: Caller, other: Caller) -> None:
        service.error = ValueError("not this time")
        made = [asyncio.ensure_future(caller.call((n,), KEY)) for n, caller in enumerate((one, other))]
        await asyncio.sleep(0.05)
        service.answer.set()
        first, second = [await call for call in made]
        assert str(first.error) == "not this time"
        assert (second.value, second.found) == ("answer to 1", False)

    assert run(tmp_path, steps).asked == [0, 1]


def test_a_call_that_was_cancelled_elsewhere_is_made_here(tmp_path: Path) -> None:
    async def steps(service: Service, one: Caller, other: Caller) -> None:
        made = [asyncio.ensure_future(caller.call((n,), KEY)) for n, caller in enumerate((one, other))]
        await asyncio.sleep(0.05)
        made[0].cancel()
        service.answer.set()
        assert (await made[1]).value == "answer to 1"

    assert run(tmp_path, steps).asked == [0, 1]


def test_a_hedge_does_not_wait_for_what_it_races(tmp_path: Path) -> None:
    async def steps(service: Service, one: Caller, other: Caller) -> None:
        made = [asyncio.ensure_future(caller.call((n,), KEY, race=bool(n))) for n, caller in enumerate((one, other))]
        await asyncio.sleep(0.05)
        assert service.asked == [0, 1]
        service.answer.set()
        assert [(await call).found for call in made] == [False, False]

    run(tmp_path, steps)


def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_module, "PATIENCE_S", 0.1)
    journal = open_journal(tmp_path, "hangs", owner="function ask")
    journal.begin(KEY)

    async def steps(service: Service, one: Caller, other: Caller) -> None:
        service.answer.set()
        assert (await one.call((1,), KEY)).value == "answer to 1"
        assert (await other.call((2,), KEY)).value == "answer to 1"

    assert run(tmp_path, steps).asked == [1]
    journal.close()
