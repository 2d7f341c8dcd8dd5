"""What becomes of a run whose script ends, fails or is stopped: never silence, and never code 0 for less than all."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import Script, read_jsonl, row, running, same
from tailrace.errors import TaskError
from tailrace.testing.processes import is_alive, wait_until

HEAD = """
import sys, time
import tailrace as tr

def endless(split, splits):
    yield from range(10**12)

def slowly(number):
    time.sleep(0.002)
    return {"n": number}

def picky(number):
    if number == 150:
        raise ValueError("no such number")
    return slowly(number)

def forever(number):
    time.sleep(1000)

def run(source, function):
    topology = tr.Topology("left")
    sink = tr.to_jsonl(sys.argv[1], roll_seconds=0.1)
    topology.source("numbers", tr.from_iterable(source)).map("work", function, kind="blocking").sink("out", sink)
    return topology.run(workers=2, max_pending=400)

"""

BUSY = """
handle = run(endless, forever)
while not (handle.lastProgress or {}).get("pending"):
    time.sleep(0.01)
"""
"""A run with something to give up."""

WAITING = (
    "the script has ended and its run goes on: run=left: waiting for its end; Ctrl-C drains it; "
    "did you forget run.awaitTermination()?"
)


def _ends(folder: Path, code: str) -> tuple[int, str, list[int]]:
    """A script that ends by itself: its exit code, what it printed, and its rows."""
    with Script(folder, HEAD + code, str(folder / "out")) as script:
        output = script.end()
    return script.process.returncode, output, [found["n"] for found in read_jsonl(folder / "out")]


def test_a_script_that_ends_waits_for_its_run_and_says_so(tmp_path: Path) -> None:
    code, output, numbers = _ends(tmp_path, "run(range(300), slowly)\nprint('the last line')")
    assert (code, sorted(numbers)) == (0, list(range(300))), output
    assert output.index("the last line") < output.index(WAITING)


def test_a_worker_that_dies_after_the_script_has_ended_comes_back(tmp_path: Path) -> None:
    body = """
import atexit, os, signal, threading
handle = run(range(2000), slowly)
handle.awaitRunning(60)
threading.Timer(0.5, lambda: os.kill(handle.workerPids()[1], signal.SIGKILL)).start()
atexit.register(lambda: print("recoveries", handle.lastProgress["recoveries"]))
"""
    code, output, numbers = _ends(tmp_path, body)
    assert (code, sorted(numbers)) == (0, list(range(2000))), output
    assert "recoveries 1" in output


def test_a_run_that_fails_after_the_script_has_ended_is_an_error_of_the_script(tmp_path: Path) -> None:
    body = "import atexit\natexit.register(print, 'tidied up')\nrun(range(300), picky)"
    code, output, _ = _ends(tmp_path, body)
    assert code == 1, output
    assert "ValueError: no such number" in output and "operator failed: operator=work task=0 tuple=150" in output
    assert output.rstrip().endswith("tidied up"), "other functions are still called at the exit"


def test_an_error_that_the_script_never_looked_at_is_told_when_it_ends(tmp_path: Path) -> None:
    body = "handle = run(range(300), picky)\nwhile handle.isActive: time.sleep(0.01)\nprint(handle)"
    code, output, _ = _ends(tmp_path, body)
    assert code == 1, output
    assert "<Run left failed: ValueError: no such number (operator=work task=0) id=" in output
    assert "operator failed: operator=work task=0 tuple=150" in output


def test_an_error_that_the_script_knows_of_is_not_told_again(tmp_path: Path) -> None:
    body = "handle = run(range(300), picky)\nwhile handle.isActive: time.sleep(0.01)\nassert handle.exception()"
    assert _ends(tmp_path, body)[:2] == (0, "")


def test_a_script_that_fails_drains_its_run(tmp_path: Path) -> None:
    body = "run(endless, slowly).awaitRunning(60)\ntime.sleep(0.5)\nraise RuntimeError('a slip')"
    code, output, numbers = _ends(tmp_path, body)
    assert code == 1, output
    assert output.index("RuntimeError: a slip") < output.index("the script has failed and its run goes on: run=left")
    assert sorted(numbers) == list(range(len(numbers))) and numbers


def test_a_script_that_fails_does_not_wait_for_ever(tmp_path: Path) -> None:
    body = "run(endless, forever).awaitRunning(60)\ntime.sleep(0.5)\nraise RuntimeError('a slip')"
    code, output, _ = _ends(tmp_path, body)
    assert code == 1, output
    assert "a run was given up before all was drained: run=left timeout=5.0 pending=400 waiting=work:" in output
    assert "the pending roots are lost, as there is no checkpoint" in output


@pytest.mark.parametrize("where", ["", ".awaitTermination()", "watched"])
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_the_run_that_a_script_waits_for(tmp_path: Path, kind: signal.Signals, where: str) -> None:
    body = f"run(endless, slowly){where}" if where != "watched" else "tr.watch(run(endless, slowly), 60)"
    with Script(tmp_path, HEAD + body, str(tmp_path / "out")) as script:
        wait_until(lambda: bool(list((tmp_path / "out").glob("part-*"))), 60, "rows")
        script.process.send_signal(kind)
        output = script.end()
    numbers = sorted(found["n"] for found in read_jsonl(tmp_path / "out"))
    expected = 128 + kind if kind is signal.SIGTERM or not where else -kind
    assert script.process.returncode == expected, output
    assert "draining: " in output and "what was read still arrives" in output and "given up" not in output
    assert numbers == list(range(len(numbers))) and numbers, "what was read has arrived"


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_gives_up(tmp_path: Path, kind: signal.Signals) -> None:
    with Script(tmp_path, HEAD + BUSY, str(tmp_path / "out")) as script:
        script.line_with("the script has ended")
        time.sleep(1)
        script.process.send_signal(kind)
        script.line_with("draining: run=left")
        script.process.send_signal(kind)
        output = script.end()
    assert script.process.returncode == 128 + kind, output
    assert "a run was given up before all was drained: run=left interrupted=True" in output


def test_a_second_signal_gives_up_even_while_the_warning_about_the_first_is_logged(tmp_path: Path) -> None:
    body = """
import logging, os, signal, threading

class Pressing(logging.Handler):
    def emit(self, record):
        print(record.getMessage(), flush=True)
        if record.getMessage().startswith("draining"):
            os.kill(os.getpid(), signal.SIGTERM)

def press():
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

logging.getLogger("tailrace").addHandler(Pressing())
threading.Thread(target=press).start()
handle.awaitTermination()
"""
    with Script(tmp_path, HEAD + BUSY + body, str(tmp_path / "out")) as script:
        output = script.end()
    assert script.process.returncode == 128 + signal.SIGTERM, output
    assert "a run was given up before all was drained: run=left interrupted=True" in output


def test_a_handler_for_sigterm_stays_the_users(tmp_path: Path) -> None:
    body = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
handle = run(range(800), slowly)
handle.awaitRunning(60)
print("running", flush=True)
handle.awaitTermination()
assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
"""
    with Script(tmp_path, HEAD + body, str(tmp_path / "out")) as script:
        script.line_with("running")
        script.process.send_signal(signal.SIGTERM)
        output = script.end()
    assert script.process.returncode == 0 and "mine" in output, output
    assert len(read_jsonl(tmp_path / "out")) == 800


def test_a_forked_child_leaves_the_run_to_its_parent(tmp_path: Path) -> None:
    body = """
import multiprocessing
handle = run(range(300), slowly)
child = multiprocessing.get_context("fork").Process(target=print, args=("child",))
child.start()
child.join(20)
print("child ended", child.exitcode)
"""
    code, output, numbers = _ends(tmp_path, body)
    assert (code, len(numbers)) == (0, 300), output
    assert "child ended 0" in output and output.count(WAITING) == 1


def _numbers(function: object) -> tr.Topology:
    topology = tr.Topology("numbers")
    topology.source("numbers", tr.from_iterable(range(300))).map("work", function).sink("out", tr.to_list())
    return topology


def refuse(number: int) -> int:
    raise ValueError(f"not {number}")


def test_leaving_a_with_block_raises_what_the_run_has_failed_with() -> None:
    with pytest.raises(TaskError, match="ValueError: not 0"), _numbers(refuse).run(workers=1) as run:
        wait_until(lambda: not run.isActive, 60, "the run to fail")


def test_a_run_that_is_stopped_before_it_begins_says_that_it_has_read_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with _numbers(same).run(workers=1):
        pass
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == (
        "a run was stopped before its sources began, and has read nothing: run=numbers: "
        "did you mean run.awaitTermination(), or awaitRunning() first?"
    )


def test_leaving_a_with_block_does_not_hide_its_own_error() -> None:
    with pytest.raises(RuntimeError, match="mine"), _numbers(refuse).run(workers=1):
        raise RuntimeError("mine")


def test_a_run_tells_how_it_is() -> None:
    topology = tr.Topology("told")
    topology.source("numbers", tr.at_rate(range(10**9), 100)).map("row", row).sink("out", tr.to_list())
    run = topology.run(workers=1)
    assert repr(run) == f"<Run told starting id={run.id[:8]}>" and run.status["message"] == "waiting for workers"
    run.awaitRunning(60)
    wait_until(lambda: repr(run) == f"<Run told running id={run.id[:8]}>", 30, "the run to say so")
    run.stop()
    assert repr(run) == f"<Run told finished id={run.id[:8]}>" and run.status["message"] == "finished"


def test_a_run_tells_that_it_has_failed_and_why() -> None:
    run = _numbers(refuse).run(workers=1)
    with pytest.raises(TaskError):
        run.awaitTermination(60)
    assert repr(run) == f"<Run numbers failed: ValueError: not 0 (operator=work task=0) id={run.id[:8]}>"
    assert run.status["message"] == "failed: ValueError: not 0 (operator=work task=0)"
    assert run.lastProgress is not None
    assert (run.lastProgress["status"], run.lastProgress["error"]) == (
        "failed",
        "ValueError: not 0 (operator=work task=0)",
    )


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), True, [], float("inf")])
def test_a_timeout_that_is_none_is_refused(timeout: object) -> None:
    with running(_numbers(same), workers=1) as run:
        for wait in (run.awaitTermination, run.stop, run.processAllAvailable, run.awaitRunning):
            with pytest.raises(tr.OptionError, match=r"not a timeout: timeout=.*; is it a number of seconds, zero"):
                wait(timeout)  # type: ignore[arg-type]
        assert run.awaitTermination(1e300), "as long as it takes"


def test_the_workers_of_a_run_that_is_given_up_leave(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology = tr.Topology("given-up")
    numbers = topology.source("numbers", tr.from_iterable(range(10**9)))
    numbers.map("wait", lambda number: time.sleep(1), kind="blocking").sink("out", tr.to_list())
    with topology.run(workers=2, checkpoint=str(tmp_path / "checkpoint"), max_pending=50) as run:
        wait_until(lambda: bool((run.lastProgress or {}).get("pending")), 60, "roots under way")
        pids = list(run.workerPids().values())
        run.stop(timeout=0.1)
    wait_until(lambda: not any(is_alive(pid) for pid in pids if pid != os.getpid()), 30, "the workers to leave")
    (told,) = [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]
    assert told.startswith(
        "a run was given up before all was drained: run=given-up timeout=0.1 pending=50 waiting=wait:"
    )
    assert told.endswith("the pending roots wait for the next run; could it have had more time?")
