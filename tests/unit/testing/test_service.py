"""The service that tests and measurements call: it counts, and it misbehaves as it is told to."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tailrace.testing.service import Behaviour, answer_ms, serving

QUICK = {"median_ms": 1.0, "least_ms": 1.0, "most_ms": 1.0}


def ask(url: str, key: str) -> str | tuple[int, str | None]:
    """The answer, or the status and what it says of when to come again."""
    try:
        with urlopen(f"{url}/{key}", timeout=20) as reply:
            return str(reply.read().decode())
    except HTTPError as error:
        with error:
            return error.code, error.headers.get("Retry-After")


def ask_all(url: str, calls: int) -> list[str | tuple[int, str | None]]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda number: ask(url, f"key-{number}"), range(calls)))


def test_a_key_takes_the_same_time_in_every_run() -> None:
    behaviour = Behaviour()
    times = [answer_ms(behaviour, f"key-{number}") for number in range(1000)]
    assert times == [answer_ms(behaviour, f"key-{number}") for number in range(1000)]
    assert min(times) >= 5 and max(times) <= 50
    assert 13 < sorted(times)[500] < 17


def test_it_answers_and_counts() -> None:
    with serving(Behaviour(**QUICK)) as service:
        assert ask_all(service.url, 20) == [f"answer to key-{number}" for number in range(20)]
        assert ask(service.url, "key-3") == "answer to key-3"
        report = service.report()
    assert report["by_key"] == {**{f"key-{number}": 1 for number in range(20)}, "key-3": 2}
    assert len(report["begun_s"]) == 21
    assert (report["refused"], report["failed"]) == (0, 0)


def test_it_refuses_what_is_above_a_rate() -> None:
    with serving(Behaviour(**QUICK, refuse_above=1, refuse_until_s=3600, retry_after_s=0.25)) as service:
        answers = ask_all(service.url, 2)
        report = service.report()
    assert sorted(answers, key=str)[0] == (429, "0.25")
    assert report["refused"] == 1
    assert (len(report["begun_s"]), len(report["taken_s"]), len(report["by_key"])) == (2, 1, 1)


@pytest.mark.parametrize(("share", "status", "counted"), [("refusing", 429, "refused"), ("failing", 500, "failed")])
def test_calls_are_refused_and_fail_by_chance(share: str, status: int, counted: str) -> None:
    with serving(Behaviour(**QUICK, **{share: 0.5})) as service:
        answers = ask_all(service.url, 60)
        report = service.report()
    bad = [answer for answer in answers if not isinstance(answer, str)]
    assert {answer[0] for answer in bad} == {status}
    assert 10 < len(bad) == report[counted] < 50
    assert len(report["by_key"]) == 60 - len(bad)
    assert len(report["taken_s"]) == 60 - report["refused"], "what fails was taken"


def test_calls_hang_by_chance() -> None:
    with serving(Behaviour(**QUICK, hanging=1.0, hang_factor=200)) as service:
        began_s = time.monotonic()
        ask(service.url, "key")
        assert time.monotonic() - began_s >= 0.2
