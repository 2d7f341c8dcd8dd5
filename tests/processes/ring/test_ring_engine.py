"""Workers of one machine talk through shared memory where there is some, and over TCP where there is none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import assert_same_rows, finish, running
from tailrace.ring.segment import FOLDER, PREFIX
from tailrace.testing.processes import wait_until

NUMBERS = 5_000
OVER_TCP = "workers of one machine talk over TCP, not through shared memory"

SCRIPT = f"""
import logging
import tailrace as tr
logging.basicConfig(format="%(levelname)s %(message)s")
def double(number): return 2 * number
out = tr.to_list()
topology = tr.Topology("fallback")
topology.source("numbers", tr.from_iterable(range({NUMBERS}))).map("double", double, tasks=3).sink("out", out)
topology.run(workers=3).awaitTermination()
assert sorted(out.values) == [2 * number for number in range({NUMBERS})]
print("exact")
"""

NO_EXTENSION = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "tailrace.ring._ring":
            raise ImportError("not built")
sys.meta_path.insert(0, Missing())
"""


def double(number: int) -> int:
    return 2 * number


def pipeline(out: object) -> tr.Topology:
    topology = tr.Topology("rings")
    numbers = topology.source("numbers", tr.at_rate(range(NUMBERS), 1_000))  # five seconds: time to look at it
    numbers.map("double", double, tasks=2).sink("out", out)
    return topology


def rings_of(pid: int) -> int:
    """Segments that a process has mapped. Their names are gone already."""
    return sum(f"{FOLDER}/{PREFIX}-" in line for line in Path(f"/proc/{pid}/maps").read_text().splitlines())


def segments() -> list[str]:
    return [path.name for path in FOLDER.glob(f"{PREFIX}-*")]


@pytest.mark.parametrize("ring", [True, False])
def test_rings_carry_the_links_unless_told_otherwise(ring: bool) -> None:
    out = tr.to_list()
    with running(pipeline(out), workers=2, ring=ring) as run:
        pids = list(run.workerPids().values())
        if ring:
            wait_until(lambda: all(map(rings_of, pids)), 30)
        else:
            wait_until(lambda: (run.lastProgress or {}).get("operators", [{"received": 0}])[-1]["received"], 30)
            assert not any(map(rings_of, pids))
        finish(run)
    assert_same_rows(out.values, [2 * number for number in range(NUMBERS)])


def test_a_killed_worker_leaves_no_segment() -> None:
    out = tr.to_list()
    with running(pipeline(out), workers=2) as run:
        os.kill(run.workerPids()[1], signal.SIGKILL)
        finish(run)
        assert not segments()
    assert_same_rows(out.values, [2 * number for number in range(NUMBERS)])


def test_without_the_extension_links_go_over_tcp_and_it_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_EXTENSION)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "exact\n"), done.stderr
    assert done.stderr.count(OVER_TCP) == 1, done.stderr
    assert "the C extension is missing" in done.stderr


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return (
        subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", FOLDER], capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a file system of its own")
@pytest.mark.parametrize(("options", "why"), [("size=16k", "is it full?"), ("ro", "is /dev/shm there and writable?")])
def test_without_room_links_go_over_tcp_and_it_is_said_once(options: str, why: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    mounted = f'mount -t tmpfs -o {options} tmpfs {FOLDER} && exec "$0" "$1"'
    command = ["unshare", "-m", "sh", "-c", mounted, sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "exact\n"), done.stderr
    assert done.stderr.count(OVER_TCP) == 1, done.stderr
    assert why in done.stderr
