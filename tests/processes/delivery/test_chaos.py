"""Kills, stops, cuts, a slow disk, unread output and switched techniques, all at once: the end is exact."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("chaos.py")
LAST_S = 180
"""For the drain at the end, and for a machine that is busy."""


def _read(process: subprocess.Popen[bytes], blocked: threading.Event) -> None:
    """Reads what the driver prints, except while ``blocked`` is set."""
    assert process.stdout is not None
    while process.stdout.read1(65536):
        while blocked.is_set():
            time.sleep(0.05)


def _torment(process: subprocess.Popen[bytes], blocked: threading.Event, seconds: float, rng: random.Random) -> None:
    """What the driver cannot do to itself."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        time.sleep(rng.uniform(2, 20))
        if rng.random() < 0.6:
            blocked.set()
            time.sleep(rng.uniform(2, 10))
            blocked.clear()
        elif process.poll() is None:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(rng.choice([1.0, 4.0, 10.0]))
            os.kill(process.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("seconds", "seed"),
    [
        pytest.param(25, 3, marks=[pytest.mark.slow, pytest.mark.timeout(25 + 2 * LAST_S)]),
        pytest.param(600, 1, marks=[pytest.mark.soak, pytest.mark.timeout(600 + 2 * LAST_S)]),
    ],
)
def test_everything_at_once(seconds: int, seed: int, tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    command = [sys.executable, str(PROGRAM), "--seconds", str(seconds), "--seed", str(seed)]
    with errors.open("wb") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file)
    blocked = threading.Event()
    threading.Thread(target=_read, args=(process, blocked), daemon=True).start()
    try:
        _torment(process, blocked, seconds, random.Random(seed))
        code = process.wait(LAST_S)
    finally:
        blocked.clear()
        if process.poll() is None:
            process.kill()
            process.wait()
    said = errors.read_text(errors="replace")
    assert code == 0, said
    assert said.splitlines()[-1].startswith("exact: "), said
