"""Can workers run here? Every reason why not, executor by executor, before a run has to find out."""

from __future__ import annotations

import json
import platform
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError
from tailrace.runtime.coordinator import Place
from tailrace.spark.host import explain, hopeless_cause, host_of_failure
from tailrace.spark.run import check_session, configuration, place_of, slots_of
from tailrace.spark.session import find_java, java_problem, java_version
from tailrace.spark.slots import HELD
from tailrace.version import VERSION

PROBE_S = 60.0
"""For all probes: a cold executor starts an interpreter first, and its slots may be busy."""

LINGER_S = 0.5
"""A probe stays so long in its slot, so that the next one goes to another executor."""

PROBES = 16
"""Tasks to send where the number of slots is not known."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``detail`` says what is there, or what to do about it."""

    ok: bool
    what: str
    detail: str


def check_java() -> Finding:
    problem = java_problem()
    if problem is not None:
        return Finding(False, "Java", problem)
    java = find_java()
    assert java is not None
    return Finding(True, "Java", f"version {java_version(java)[0]} ({java})")


def examine(spark: SparkSession) -> list[Finding]:
    """Look at everything a run on this session needs."""
    findings = [
        check_java(),
        Finding(True, "driver", f"Python {platform.python_version()}, tailrace {VERSION}"),
        Finding(True, "PySpark", f"version {pyspark.__version__}"),
    ]
    try:
        check_session(spark)
    except TailraceError as error:
        return [*findings, Finding(False, "session", str(error))]
    context = spark.sparkContext
    findings.append(Finding(True, "session", f"{context.master}, application {context.applicationId}"))
    total = slots_of(spark)
    findings.append(_slots(total, HELD.count(context.applicationId)))
    place = place_of(str(context.master), configuration(spark))
    return findings + examine_executors(spark, place, total or PROBES)


def _slots(total: int | None, held: int) -> Finding:
    if total is None:
        return Finding(
            True, "slots", "only the cluster manager knows how many; a run waits for its workers and says so"
        )
    free = total - held
    if free < 1:
        return Finding(False, "slots", f"none of {total} is free: runs hold {held}; could one of them be stopped?")
    return Finding(True, "slots", f"{free} of {total} free: a run can have as many workers")


def examine_executors(spark: SparkSession, place: Place, probes: int) -> list[Finding]:
    """Send probes to the executors, and judge what they bring back."""
    group = f"tailrace-doctor-{uuid.uuid4().hex[:8]}"
    with socket.create_server((place.bind, 0), backlog=128) as listener:
        function = probe(place.address, listener.getsockname()[1], LINGER_S)
        try:
            reports = _gather(spark, group, function, probes, PROBE_S)
        except Exception as error:
            cause = hopeless_cause(str(error), host_of_failure(spark.sparkContext, group))
            return [Finding(False, "executors", cause or f"no probe came back: {explain(error)}")]
    expected = Expected(platform.python_version().rpartition(".")[0], VERSION)
    found: list[Finding] = []
    for report in sorted(set(reports)):
        found += judge(json.loads(report), place, expected)
    return found


@dataclass(frozen=True)
class Expected:
    """What the driver has, and executors should."""

    python: str  # major.minor
    tailrace: str


def _gather(spark: SparkSession, group: str, function: Any, probes: int, timeout_s: float) -> list[str]:
    """What the probes report. The job gets a thread of its own: it could wait for a slot for ever."""
    outcome: list[list[str] | Exception] = []

    def job() -> None:
        try:
            spark.sparkContext.setJobGroup(group, "tailrace doctor")
            rows = spark.range(0, probes, 1, probes).mapInArrow(function, "report string").collect()
            outcome.append([row.report for row in rows])
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=job, name="tailrace-doctor", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        spark.sparkContext.cancelJobGroup(group)
        raise TimeoutError(f"no free slot in {timeout_s:g} s; is the cluster busy, or has it no executors?")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def probe(address: str, port: int, linger_s: float) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function of ``mapInArrow``; pickled by value, as an executor may have no tailrace."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib
        import json
        import platform
        import socket
        import sys
        import time

        import pyarrow as pa

        for _ in batches:
            pass
        report = {"host": socket.gethostname(), "executable": sys.executable, "python": platform.python_version()}
        for name in ("tailrace", "pyarrow", "cloudpickle"):
            try:
                report[name] = importlib.import_module(name).__version__
            except Exception as error:
                report[name] = ""
                report[f"{name}_error"] = f"{type(error).__name__}: {error}"
        try:
            socket.create_connection((address, port), timeout=3).close()
            report["unreachable"] = ""
        except OSError as error:
            report["unreachable"] = str(error)
        time.sleep(linger_s)
        yield pa.RecordBatch.from_arrays([pa.array([json.dumps(report, sort_keys=True)])], names=["report"])

    return task


def judge(report: dict[str, str], place: Place, expected: Expected) -> list[Finding]:
    """What one executor's report means."""
    what = f"executor on {report['host']}"
    problems = []
    if report["python"].rpartition(".")[0] != expected.python:
        problems.append(
            f"Python {report['python']} at {report['executable']}, the driver has {expected.python}; "
            "is PYSPARK_PYTHON the same everywhere?"
        )
    if not report["tailrace"]:
        problems.append(
            f"cannot import tailrace into {report['executable']}: {report['tailrace_error']}; is it installed there?"
        )
    elif report["tailrace"] != expected.tailrace:
        problems.append(f"tailrace {report['tailrace']}, the driver has {expected.tailrace}; could they be the same?")
    for name in ("pyarrow", "cloudpickle"):
        if not report[name]:
            problems.append(f"cannot import {name} into {report['executable']}: {report[f'{name}_error']}")
    if report["unreachable"]:
        problems.append(
            f"cannot reach the driver at {place.address}: {report['unreachable']}; "
            "is spark.driver.host an address that executors know, and no firewall between?"
        )
    if problems:
        return [Finding(False, what, problem) for problem in problems]
    versions = ", ".join(f"{name} {report[name]}" for name in ("tailrace", "pyarrow", "cloudpickle"))
    return [
        Finding(True, what, f"Python {report['python']}, {versions}; the driver is reachable ({report['executable']})")
    ]
