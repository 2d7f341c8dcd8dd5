"""What a worker asks of its process."""

from __future__ import annotations

import subprocess
import sys

FOR_EVER = "re.match(r'(a+)+$', 'a' * 60 + 'b')"  # holds the interpreter for hours


def _python(*lines: str) -> subprocess.CompletedProcess[str]:
    source = "\n".join(["import re, time", "from tailrace.runtime.worker.interpreter import *", *lines])
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)


def test_a_process_whose_call_holds_the_interpreter_ends_all_the_same_and_says_where() -> None:
    ended = _python("def stuck():", f"    {FOR_EVER}", "arm_watchdog(0.2)", "stuck()")
    assert ended.returncode == 1
    assert "in stuck" in ended.stderr


def test_one_that_is_armed_again_or_disarmed_goes_on() -> None:
    again = "for _ in range(6): arm_watchdog(5.0); time.sleep(0.05)"
    ended = _python(again, "arm_watchdog(0.2)", "disarm_watchdog()", "time.sleep(0.5)", "print('went on')")
    assert (ended.returncode, ended.stdout) == (0, "went on\n")
