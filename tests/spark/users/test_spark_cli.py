"""The command on a local Spark, as a user starts it: real runs, a lost worker, Ctrl-C. No JVM may stay behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.runs import MARK
from tailrace import demo
from tailrace.testing.processes import processes_with, wait_until

TAILRACE = [sys.executable, "-m", "tailrace.cli"]
LEAVE_S = 15.0
STACK_TRACE = re.compile(r"^\s+at (org|java|scala)\.", re.MULTILINE)

SQUARES = """
from dataclasses import dataclass

import tailrace as tr


@dataclass
class Square:
    of: int

    def row(self):
        return {{"n": self.of, "square": self.of ** 2}}


def read(split, splits):
    return range(split, {total}, splits)


def square(n):
    if n == {poison}:
        raise ValueError("not this one")
    return Square(n)


topology = tr.Topology("squares")
numbers = topology.source("numbers", tr.at_rate(read, 400), tasks=2)
squares = numbers.map("square", square, tasks=2)
squares.map("row", Square.row, tasks=2).sink("out", tr.to_jsonl({out!r}, roll_seconds=0.3))
"""


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Of the command. Whatever it starts carries a mark, and must be gone at the end."""
    mark = uuid.uuid4().hex
    yield {**os.environ, MARK: mark}
    try:
        wait_until(lambda: not processes_with(MARK, mark), LEAVE_S, "the command's processes to leave")
    except AssertionError:
        left = processes_with(MARK, mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes are left behind: pids={left}")


def squares(folder: Path, total: int = 400, poison: int = -1) -> str:
    file = folder / "squares.py"
    file.write_text(SQUARES.format(total=total, poison=poison, out=str(folder / "rows")))
    return str(file)


def numbers(folder: Path) -> list[int]:
    lines = [line for part in (folder / "rows").glob("part-*.jsonl") for line in part.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


def readers(folder: Path) -> set[int]:
    """Those of the two of which there are rows."""
    return {n % 2 for n in numbers(folder)}


def tailrace(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TAILRACE, *arguments], capture_output=True, text=True, timeout=150, env=environment)


def test_run(tmp_path: Path, environment: dict[str, str]) -> None:
    options = ["--json", "--checkpoint", str(tmp_path / "state"), "--conf", "spark.tailrace.workers=3"]
    done = tailrace(environment, "run", squares(tmp_path), *options)
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["status"], last["durable"]) == ("finished", 400)
    assert len(last["workers"]) == 3
    assert numbers(tmp_path) == list(range(400))


def test_run_on_a_master_of_ones_own_and_a_failing_function(tmp_path: Path, environment: dict[str, str]) -> None:
    options = ["--master", "local[3,8]", "--conf", "spark.ui.enabled=false"]
    done = tailrace(environment, "run", squares(tmp_path, poison=100), *options)
    assert done.returncode == 1
    told = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert told[1].startswith(f'  File "{tmp_path / "squares.py"}", line ')
    assert re.fullmatch(r"operator failed: operator=square task=[01] tuple=100", told[-1])
    assert not STACK_TRACE.search(done.stderr)


def test_ctrl_c_drains(tmp_path: Path, environment: dict[str, str]) -> None:
    """Sent to the whole process group, as a terminal does: neither Spark nor the workers may take it for theirs."""
    command = [*TAILRACE, "run", squares(tmp_path, total=10**9)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            wait_until(lambda: process.poll() is not None or readers(tmp_path) == {0, 1}, 100, "rows of both readers")
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            out, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, error
    assert "draining: what was read becomes durable" in out
    assert not STACK_TRACE.search(out + error)
    found = numbers(tmp_path)
    for reader in (0, 1):
        mine = [n for n in found if n % 2 == reader]
        assert mine == list(range(reader, mine[-1] + 1, 2))


def test_demo(tmp_path: Path, environment: dict[str, str]) -> None:
    options = ["--seconds", "4", "--workers", "2", "--out", str(tmp_path / "out")]
    done = tailrace(environment, "demo", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on 2 workers, each a task of a local Spark" in done.stdout
    assert re.search(r"^kill -9 \d+: worker 1 is gone", done.stdout, re.MULTILINE)
    assert "is gone" not in done.stderr, "the run says the same in its own words"
    assert re.search(r"^check: [\d,]+ rows, each exactly once \(600 sentences\)$", done.stdout, re.MULTILINE)
    assert not STACK_TRACE.search(done.stdout + done.stderr)
    assert demo.judge(tmp_path / "out", 4 * demo.RATE).ok


def test_doctor(environment: dict[str, str]) -> None:
    done = tailrace(environment, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("✓ Java: version ")
    assert "✗" not in done.stdout
    assert done.stdout.endswith("\nall is well\n")


@pytest.mark.soak
def test_doctor_on_a_cluster_for_machines(environment: dict[str, str]) -> None:
    done = tailrace(environment, "doctor", "--master", "local-cluster[3,1,1024]", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert [(executor["id"], executor["ok"]) for executor in found["executors"]] == [(n, True) for n in "012"]
    assert {check["what"] for check in found["checks"]} == {
        *("Java", "driver", "PySpark", "session", "slots", "other sessions")
    }
