"""The row about the journal: paid calls, five killed workers, one killed driver. The service counts what was paid for.

With the journal, a call is made again only if it was under way at a kill. Without it, all calls are made again whose
results were not durable yet.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.testing.service import Behaviour, Service, serving
from tailrace_research.bench.dataframe import journal_driver
from tailrace_research.bench.dataframe.run import DataFrameSizes, Result, Row, Samples
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of

KILLS = 5
TIMEOUT_S = 300
SIDES = {"on": "with a journal", "off": "without"}


def contests(sizes: DataFrameSizes, spark: Any) -> list[Contest]:
    return [Contest(f"journal, {title}", partial(_measure, sizes, side)) for side, title in SIDES.items()]


def _measure(sizes: DataFrameSizes, side: str) -> Figures:
    calls = sizes.paid
    with serving(Behaviour()) as service, tempfile.TemporaryDirectory(prefix="tailrace-journal-") as name:
        folder = Path(name)
        options = {
            "calls": calls,
            "port": service.port,
            "journal": str(folder / "journal") if side == "on" else None,
            "checkpoint": str(folder / "checkpoint"),
            "out": str(folder / "out"),
        }
        in_flight = _run_and_kill(options, service)
        report = service.report()
        rows = [line for part in (folder / "out").glob("part-*.jsonl") for line in part.read_text().splitlines()]
    if len(rows) != calls or len(set(rows)) != calls:
        raise TailraceError(f"rows differ from calls: rows={len(rows)} distinct={len(set(rows))} calls={calls}")
    sizes.traces[f"journal_{side}"] = report["begun_s"]
    made = sum(report["by_key"].values())
    return {f"journal_{side}_calls": float(made), f"journal_{side}_in_flight": float(in_flight)}


def _run_and_kill(options: dict[str, Any], service: Service) -> int:
    """Kill a worker at each sixth of the calls, and the driver in the middle. Returns the most calls it interrupted."""
    calls, killed, in_flight, deadline_s = options["calls"], 0, 0, time.monotonic() + TIMEOUT_S
    driver_killed = False
    while True:
        driver = subprocess.Popen(
            [sys.executable, "-m", journal_driver.__name__, json.dumps(options)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert driver.stdout is not None
            for line in driver.stdout:
                if time.monotonic() > deadline_s:
                    raise TailraceError(f"the run did not end: last={line.strip()}")
                made = sum(service.report()["by_key"].values())
                if not driver_killed and made >= calls // 2:
                    driver_killed = True
                    in_flight += journal_driver.WORKERS * journal_driver.CONCURRENCY
                    driver.kill()
                    break
                pids = json.loads(line)["pids"]
                if killed < KILLS and made >= (killed + 1) * calls // (KILLS + 1) and pids:
                    os.kill(list(pids.values())[killed % len(pids)], signal.SIGKILL)
                    killed += 1
                    in_flight += journal_driver.CONCURRENCY
            else:
                if driver.wait() != 0:
                    raise TailraceError(f"the driver failed: exit_code={driver.returncode}")
                return in_flight
        finally:
            driver.kill()
            driver.wait()


def conclude(samples: Samples) -> Samples:
    return {"journal_calls": samples["journal_on_calls"], "journal_calls_without": samples["journal_off_calls"]}


def table(result: Result) -> list[str]:
    lines = [(f"calls paid for, {KILLS} workers and a driver killed", "calls", "", "at most in flight at a kill")]
    lines += [
        (
            title,
            f"{result[f'journal_{side}_calls']:,.0f}",
            range_of(result, f"journal_{side}_calls", "{:,.0f}"),
            f"{result[f'journal_{side}_in_flight']:,.0f}",
        )
        for side, title in SIDES.items()
    ]
    return aligned(lines)


JOURNAL = Row("journal", contests, conclude, table)
