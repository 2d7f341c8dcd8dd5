"""What users meet when their own code fails: errors that name the place and the tuple, logs that reach them."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import (
    Script,
    assert_prefixes,
    assert_same_rows,
    await_recovery,
    coordinator,
    finish,
    homes,
    kill,
    received,
    recoveries,
    restarts,
    running,
    same,
    stop,
)
from tailrace.errors import TailraceError, TaskError
from tailrace.testing.processes import is_alive, wait_until


def _fails(topology: tr.Topology, error: type[Exception] = TaskError, workers: int = 2, **options: Any) -> str:
    """Run to the expected failure. Returns its text."""
    with pytest.raises(error) as raised, running(topology, workers=workers, **options) as run:
        pids = list(run.workerPids().values())
        run.awaitTermination(60)
    assert not any(is_alive(pid) for pid in pids)
    assert run.exception() is raised.value
    assert run.lastProgress is not None and run.lastProgress["status"] == "failed"
    return str(raised.value)


def _one_map(function: Any, rows: int = 100, **options: Any) -> tr.Topology:
    topology = tr.Topology("errors")
    numbers = topology.source("numbers", tr.from_iterable(range(rows)))
    numbers.map("work", function, **options).sink("out", tr.to_list())
    return topology


def picky(number: int) -> int:
    if number == 42:
        raise ValueError("no answers here")
    return number


async def picky_async(number: int) -> int:
    return picky(number)


def exits(number: int) -> int:
    if number == 42:
        sys.exit("enough")
    return number


@pytest.mark.parametrize("function", [picky, picky_async])
def test_a_function_that_raises(function: Any) -> None:
    text = _fails(_one_map(function, tasks=2))
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "test_errors.py" in lines[1] and f"in {function.__name__}" in lines[1], "the user's own frame comes first"
    assert "ValueError: no answers here" in lines
    assert lines[-1].startswith("operator failed: operator=work task=") and lines[-1].endswith("tuple=42")


def test_a_function_that_exits() -> None:
    text = _fails(_one_map(exits))
    assert "SystemExit: enough" in text and "operator failed: operator=work task=0 tuple=42" in text


def picky_batch(numbers: list[int]) -> list[int]:
    return [picky(number) for number in numbers]


def test_a_batch_that_raises() -> None:
    topology = tr.Topology("errors")
    numbers = topology.source("numbers", tr.from_iterable(range(100)))
    numbers.map_batch("work", picky_batch).sink("out", tr.to_list())
    text = _fails(topology)
    assert "ValueError: no answers here" in text and "operator failed: operator=work task=0" in text


@pytest.mark.parametrize("function", [picky, picky_async, exits])
def test_skip_is_counted(function: Any) -> None:
    out = tr.to_list()
    topology = tr.Topology("skip")
    numbers = topology.source("numbers", tr.from_iterable(range(100)))
    numbers.map("work", function, tasks=2, on_error="skip").sink("out", out)
    with running(topology, workers=2) as run:
        progress = finish(run)
    assert_same_rows(out.values, set(range(100)) - {42})
    assert progress["skipped"] == 1


def test_dead_letters_come_once_even_with_a_kill() -> None:
    out, letters = tr.to_list(), tr.to_list()
    topology = tr.Topology("letters")
    numbers = topology.source("numbers", tr.at_rate(range(10_000_000), 2000))
    work = numbers.map("work", odd_ones_fail, tasks=2, on_error="dead_letter")
    work.sink("out", out)
    work.dead_letters.sink("letters", letters)
    with running(topology, workers=3) as run:
        for worker in (homes(topology, 3, "work")[0], homes(topology, 3, "letters")[0]):
            least = received(run, "letters") + 200
            wait_until(lambda least=least: received(run, "letters") >= least, 30, "dead letters")
            before = recoveries(run)
            kill(run, worker)
            await_recovery(run, before + 1)
        progress = stop(run)
    assert all(number % 2 == 0 for number in out.values)
    assert_prefixes([*out.values, *(letter["value"] for letter in letters.values)], 1, 400)
    assert progress["deadLetters"] > 0
    letter = letters.values[0]
    assert letter["operator"] == "work" and letter["error"] == "ValueError: odd" and "Traceback" in letter["traceback"]


def odd_ones_fail(number: int) -> int:
    if number % 2:
        raise ValueError("odd")
    return number


def a_lock(number: int) -> Any:
    return threading.Lock() if number == 42 else number


def test_a_tuple_that_cannot_be_pickled() -> None:
    topology = tr.Topology("errors")
    numbers = topology.source("numbers", tr.from_iterable(range(100)))
    numbers.map("work", a_lock).map("next", same).sink("out", tr.to_list())
    assert homes(topology, 3, "work") != homes(topology, 3, "next")
    text = _fails(topology, workers=3)
    assert "a tuple cannot be sent: from=work to=next cause=TypeError: cannot pickle '_thread.lock' object" in text
    assert "operator failed: operator=work task=0 tuple=<unlocked _thread.lock object" in text


class CannotComeBack:
    """Can be pickled, and raises when it is unpickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __setstate__(self, state: Any) -> None:
        raise ValueError("I do not want to come back")


def test_a_tuple_that_cannot_be_unpickled() -> None:
    topology = tr.Topology("errors")
    numbers = topology.source("numbers", tr.from_iterable(range(100)))
    numbers.map("work", CannotComeBackIf42()).map("next", same).sink("out", tr.to_list())
    text = _fails(topology, TailraceError, workers=3)
    assert "ValueError: I do not want to come back" in text


class CannotComeBackIf42:
    def __call__(self, number: int) -> Any:
        return CannotComeBack(number) if number == 42 else number


class WillNotOpen:
    def open(self, context: tr.Context) -> None:
        raise ConnectionError("nobody answers")

    def process(self, number: int) -> int:
        return number


def test_a_class_that_does_not_open() -> None:
    text = _fails(_one_map(WillNotOpen))
    assert "ConnectionError: nobody answers" in text
    assert text.splitlines()[-1] == "operator failed: operator=work task=0 tuple=(while opening)"


def some_key(number: int) -> dict[str, int]:
    return {"other": number} if number == 42 else {"key": number}


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_missing_key(on_error: str) -> None:
    out = tr.to_list()
    topology = tr.Topology("keys")
    rows = topology.source("numbers", tr.from_iterable(range(100))).map("row", some_key, on_error=on_error)
    rows.map("work", same, tasks=3, grouping=tr.fields("key")).sink("out", out)
    if on_error == "skip":
        with running(topology, workers=2) as run:
            assert finish(run)["skipped"] == 1
        assert_same_rows([found["key"] for found in out.values], set(range(100)) - {42})
        return
    text = _fails(topology)
    assert "a tuple has no such key: grouping=fields key='key' tuple={'other': 42}" in text
    assert "operator failed: operator=row task=0 tuple={'other': 42}" in text


class DiesOnce:
    """Takes its process with it, the first time."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __call__(self, number: int) -> int:
        if number == 42 and not self.marker.exists():
            self.marker.touch()
            os._exit(3)
        return number


def test_a_function_that_takes_its_process_along(tmp_path: Path) -> None:
    out = tr.to_list()
    topology = tr.Topology("exit")
    numbers = topology.source("numbers", tr.from_iterable(range(100)))
    numbers.map("work", DiesOnce(tmp_path / "marker")).sink("out", out)
    with running(topology, workers=2) as run:
        progress = finish(run)
    assert_same_rows(out.values, range(100))
    assert sum(restarts(progress)) == 1 and progress["recoveries"] == 1


def always_dies(number: int) -> int:
    if number == 42:
        os._exit(3)
    return number


def test_a_tuple_that_always_kills_its_worker() -> None:
    topology = _one_map(always_dies)
    started = time.monotonic()
    text = _fails(topology, tr.WorkerLost, max_deaths=2)
    worker = homes(topology, 2, "work")[0]
    assert text.startswith(f"a worker keeps dying: worker={worker} deaths=2 last=")
    assert "work" in text.partition(" operators=")[2] and " pending=numbers/" in text
    assert text.endswith("does a tuple crash it?")
    assert time.monotonic() - started < 60


def test_a_worker_that_never_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sleeper = tmp_path / "python"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(sleeper))
    text = _fails(_one_map(same), tr.WorkersMissing, start_timeout_s=0.5)
    assert text.startswith("0 of 2 workers started")
    assert text.endswith("it did not start in time; are there enough free slots?")


def test_a_worker_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    text = _fails(_one_map(same), tr.WorkersMissing)
    assert text.startswith("0 of 2 workers started") and "exit code 1" in text and text.endswith("?")


class OtherEveryTime:
    """Not repeatable: each process counts from its own number."""

    def __call__(self, split: int, splits: int) -> Iterator[int]:
        base = os.getpid() * 10_000_000
        for number in range(1_000_000):
            time.sleep(0.0005)
            yield base + number


def test_a_source_that_is_not_repeatable_is_found_out() -> None:
    topology = tr.Topology("other")
    topology.source("numbers", tr.from_iterable(OtherEveryTime())).sink("out", tr.to_list())
    (source,) = homes(topology, 2, "numbers")
    with pytest.raises(tr.NotRepeatable) as raised, running(topology, workers=2) as run:
        wait_until(lambda: any(position.offset > 0 for position in coordinator(run).positions.values()), 30, "commits")
        kill(run, source)
        run.awaitTermination(60)
    text = str(raised.value)
    assert text.startswith("source gave something else when read again: split=0/1 offset=")
    assert "is the function given to from_iterable repeatable?" in text


LOUD = """
import logging, sys
import tailrace as tr

def loud(number):
    if number < 3:
        print("printed", number)
        logging.getLogger("mine").warning("logged %d", number)
        logging.getLogger("mine").info("whispered %d", number)
    return number

async def loud_async(number):
    if number < 3:
        print("softly", number)
    return number

class Opens:
    def open(self, context):
        print("opened", context.operator, context.task, context.tasks)
    def process(self, number):
        return number
    def close(self):
        print("closed")

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s", stream=sys.stdout)
    topology = tr.Topology("loud")
    numbers = topology.source("numbers", tr.from_iterable(range(10)))
    numbers.map("loud", loud).map("softly", loud_async).map("opens", Opens).sink("out", tr.to_list())
    topology.run(workers=2).awaitTermination(60)
"""


def test_prints_and_logs_reach_the_driver(tmp_path: Path) -> None:
    with Script(tmp_path, LOUD) as driver:
        lines = driver.end().splitlines()
    for number in range(3):
        assert f"[loud/0] printed {number}" in lines
        assert f"WARNING:mine:[loud/0] logged {number}" in lines
        assert f"INFO:mine:[loud/0] whispered {number}" in lines
        assert f"[softly/0] softly {number}" in lines
    assert "[opens/0] opened opens 0 1" in lines
    assert "[opens/0] closed" in lines
    assert len(lines) == 14, lines


UNSPEAKABLE = """
import os, sys
import tailrace as tr

def loud(number):
    print("name: \\ud83d", number)
    return number

if __name__ == "__main__":
    out = tr.to_list()
    topology = tr.Topology("loud")
    topology.source("numbers", tr.at_rate(range(300), 300)).map("loud", loud).sink("out", out)
    if sys.argv[1] == "closed":
        os.close(1)
    topology.run(workers=2).awaitTermination(60)
    sys.stderr.write(f"rows {len(out.values)}\\n")
    os._exit(0)
"""


@pytest.mark.parametrize("stdout", ["open", "closed"])
def test_no_line_fails_a_run(tmp_path: Path, stdout: str) -> None:
    """Nor a stdout that is gone, as after ``| head -1``."""
    with Script(tmp_path, UNSPEAKABLE, stdout) as driver:
        lines = driver.end().splitlines()
    assert lines[-1] == "rows 300"
    assert ("[loud/0] name: \\ud83d 42" in lines) == (stdout == "open")


def loud(number: int) -> int:
    logging.getLogger("mine").warning("logged %d", number)
    return number


def test_logs_of_workers_are_the_drivers_logs(caplog: pytest.LogCaptureFixture) -> None:
    with running(_one_map(loud, rows=3), workers=2) as run:
        finish(run)
    found = [record.getMessage() for record in caplog.records if record.name == "mine"]
    assert sorted(found) == [f"[work/0] logged {number}" for number in range(3)]


FAILING = """
import tailrace as tr

def broken(number):
    return 1 // (number - 5)

if __name__ == "__main__":
    topology = tr.Topology("failing")
    topology.source("numbers", tr.from_iterable(range(10))).map("broken", broken).sink("out", tr.to_list())
    topology.run(workers=2).awaitTermination(60)
"""


def test_an_error_on_the_terminal(tmp_path: Path) -> None:
    with Script(tmp_path, FAILING) as driver:
        output = driver.end()
    assert driver.process.returncode == 1
    assert "return 1 // (number - 5)" in output and "ZeroDivisionError" in output
    assert output.rstrip().endswith("operator failed: operator=broken task=0 tuple=5")


def forget_to_return(number: int) -> None:
    number + 1


@pytest.mark.parametrize(("function", "warnings"), [(forget_to_return, 1), (same, 0)])
def test_a_function_that_forgets_to_return_is_warned_of_once(
    function: Any, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    topology = tr.Topology("forgetful")
    numbers = topology.source("numbers", tr.from_iterable(range(1000)))
    numbers.map("add", function, tasks=2).sink("out", tr.to_call(same))
    with running(topology, workers=2) as run:
        finish(run)
    told = [record.getMessage() for record in caplog.records if "returned None" in record.getMessage()]
    assert len(told) == warnings
    assert all(line.endswith(": did you forget to return?") and "operator=add" in line for line in told)
