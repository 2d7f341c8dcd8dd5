"""The bare-socket baseline runs, measures something sane, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace_research.bench.children import run_children
from tailrace_research.bench.engine.bare_hops import WARM_UP_S, run_bare_hops
from tailrace_research.bench.turns import percentile


def test_200_messages() -> None:
    result = run_bare_hops(rate=200 / (WARM_UP_S + 0.5), seconds=0.5)
    assert result["n"] == 100
    assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["p999_ms"] <= result["max_ms"] < 10_000


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.5, 50), (0.501, 51), (0.99, 99), (0.999, 100), (1.0, 100), (0, 1)]
)
def test_percentile_is_the_nearest_rank(fraction: float, expected: int) -> None:
    assert percentile(range(1, 101), fraction) == expected


def test_a_failing_process_is_reported_with_its_output(tmp_path: Path) -> None:
    options = {"role": "B", "sockets": [0, 0, 0]}  # which is /dev/null
    with pytest.raises(
        TailraceError, match=r"benchmark process failed: module=.* process=0 exit_code=1\n(?s:.*)on non-socket"
    ):
        run_children("tailrace_research.bench.engine.bare_hops_process", [options], tmp_path, timeout_s=20)


def test_a_hanging_process_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: object) -> None:
            super().__init__([sys.executable, "-c", "import time; time.sleep(60)"], **options)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    with pytest.raises(TailraceError, match="benchmark process too slow: module=nothing process=0"):
        run_children("nothing", [{}, {}], tmp_path, timeout_s=0.2)
    assert [child.returncode for child in started] == [-9, -9]
