"""Checks whether workers can run on a Spark session, and reports every obstacle, executor by executor."""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError
from tailrace.runtime.listening import Place, Ports, listen
from tailrace.spark.encryption import describe_encryption
from tailrace.spark.host import explain, hopeless_cause
from tailrace.spark.plainpython import plain_python
from tailrace.spark.probes import LOCAL, PROBE_S, Probed, Report, probe_all
from tailrace.spark.run import check_session, configuration, place_of, settings_of, slots_of
from tailrace.spark.session import find_java, java_problem, java_version
from tailrace.spark.slots import HELD, executors_wanted
from tailrace.version import VERSION

VERSIONS = ("java", "python", "tailrace", "pyarrow", "cloudpickle")
NAMES = {"java": "Java", "python": "Python"}


@dataclass(frozen=True)
class Finding:
    """The result of one check. ``detail`` says what was found, or what to do about it."""

    ok: bool
    what: str
    detail: str
    advice: bool = False  # the check passed, but the detail holds advice about other sessions

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "what": self.what, "detail": self.detail, "advice": self.advice}


@dataclass(frozen=True)
class Examined:
    """A probed executor, and everything that keeps it from hosting workers."""

    probed: Probed
    problems: list[str]
    driver_executable: str = sys.executable

    @property
    def findings(self) -> list[Finding]:
        """One finding for each problem; if there is none, one that lists slots and versions."""
        executor, report = self.probed.executor, self.probed.report
        # On a local Spark the one executor is in the driver, and Spark calls it that.
        name, host = ("", report["host"]) if executor.id == LOCAL and report else (f" {executor.id}", executor.host)
        what = f"executor{name}" + (f" on {host}" if host else "")
        if self.problems or report is None:
            return [Finding(False, what, problem) for problem in self.problems]
        slots = f"{executor.slots} slot{'' if executor.slots == 1 else 's'}"
        versions = ", ".join(f"{NAMES.get(name, name)} {report[name]}" for name in VERSIONS)
        other = f" ({report['executable']})" if report["executable"] != self.driver_executable else ""
        return [Finding(True, what, f"{slots}, {versions}; the driver is reachable{other}")]

    def to_json(self) -> dict[str, Any]:
        executor, report = self.probed.executor, self.probed.report or {}
        return {
            "id": executor.id,
            "host": executor.host,
            "slots": executor.slots,
            **{name: report.get(name) or None for name in (*VERSIONS, "executable")},
            "ok": not self.problems,
            "problems": self.problems,
        }


@dataclass(frozen=True)
class Diagnosis(Sequence[Finding]):
    """All findings, as a sequence. Those of the executors come last."""

    checks: list[Finding]
    executors: list[Examined]

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "checks": [check.to_json() for check in self.checks],
            "executors": [executor.to_json() for executor in self.executors],
        }

    def __getitem__(self, index: Any) -> Any:
        return [*self.checks, *(finding for executor in self.executors for finding in executor.findings)][index]

    def __len__(self) -> int:
        return len(self[:])


def check_java() -> Finding:
    problem = java_problem()
    if problem is not None:
        return Finding(False, "Java", problem)
    java = find_java()
    assert java is not None
    return Finding(True, "Java", f"version {java_version(java)[0]} ({java})")


def check_plain_python(conf: Mapping[str, str]) -> Finding:
    """Check the Python that a session started by the user would use. Call it before Tailrace starts one."""
    found = plain_python(conf)
    return Finding(True, "other sessions", found.words, advice=not found.fits)


def examine(spark: SparkSession) -> Diagnosis:
    """Check everything that a run on this session needs."""
    checks = [
        check_java(),
        Finding(True, "driver", f"Python {platform.python_version()}, tailrace {VERSION} ({sys.executable})"),
        Finding(True, "PySpark", f"version {pyspark.__version__}"),
    ]
    try:
        check_session(spark)
    except TailraceError as error:
        return Diagnosis([*checks, Finding(False, "session", str(error))], [])
    context = spark.sparkContext
    checks.append(Finding(True, "session", f"{context.master}, application {context.applicationId}"))
    checks.append(_slots(slots_of(spark), HELD.count(context.applicationId)))
    conf = configuration(spark)
    master = str(context.master)
    try:
        settings, place = settings_of(master, conf, {}), place_of(master, conf)
        wanted = executors_wanted(master, conf)
        executors = examine_executors(spark, place, wanted, settings.ports)
    except TailraceError as error:
        return Diagnosis([*checks, Finding(False, "options", str(error))], [])
    checks.append(Finding(*describe_encryption(settings, master, conf)))
    if len(executors) < (wanted or 1):
        checks.append(Finding(False, "executors", _too_few(len(executors), wanted)))
    checks += _hosts(executors)
    return Diagnosis(checks, executors)


def _hosts(executors: Sequence[Examined]) -> list[Finding]:
    """How workers will be spread, if there are several hosts."""
    slots = Counter[str]()
    for executor in executors:
        if not executor.problems:
            slots[executor.probed.executor.host] += executor.probed.executor.slots
    if len(slots) < 2:
        return []
    there = ", ".join(f"{slots[host]} on {host}" for host in sorted(slots))
    return [Finding(True, "hosts", f"slots: {there}; workers are spread evenly over them")]


def _slots(total: int | None, held: int) -> Finding:
    if total is None:
        return Finding(
            True, "slots", "only the cluster manager knows how many; a run waits for its workers and says so"
        )
    free = total - held
    if free < 1:
        why = (
            f"runs hold {held}; could one of them be stopped?"
            if held
            else "does a task need more cores than there are?"
        )
        return Finding(False, "slots", f"none of {total} is free: {why}")
    return Finding(True, "slots", f"{free} of {total} free: a run can have as many workers")


def _too_few(came: int, wanted: int | None) -> str:
    which = f"only {came} of {wanted} have come" if wanted and came else "none has come"
    return f"{which} within {PROBE_S:g} s; has the cluster cores and memory left?"


def examine_executors(
    spark: SparkSession, place: Place, wanted: int | None, ports: Ports | None = None
) -> list[Examined]:
    """Send a probe to every executor, and compare its report with the driver."""
    with listen(place.bind, ports, backlog=128) as listener:
        everyone = probe_all(spark, (place.address, listener.getsockname()[1]), wanted)
    expected = Expected(platform.python_version().rpartition(".")[0], VERSION)
    return [Examined(probed, judge(probed, place, expected)) for probed in everyone]


@dataclass(frozen=True)
class Expected:
    """The versions of the driver, which executors must match."""

    python: str  # major.minor
    tailrace: str


def judge(probed: Probed, place: Place, expected: Expected) -> list[str]:
    """The problems of an executor; none if workers can run there."""
    problems = _problems(probed.report, place, expected) if probed.report is not None else []
    if probed.error:
        problems.append(hopeless_cause(probed.error, probed.executor.host) or _failure(probed.error))
    if probed.report is None and not probed.error:
        problems.append("it could not be probed: none of its slots was free; is it busy?")
    return problems


def _failure(error: str) -> str:
    """Describes a failed probe of unknown cause, by the last line that Python printed if it did not start."""
    if said := re.search(r"Error from python worker:\n(.*?)\nPYTHONPATH was:", error, re.DOTALL):
        return f"Python does not start there: {said[1].strip().splitlines()[-1]}"
    return f"a probe failed: {explain(Exception(error))}"


def _problems(report: Report, place: Place, expected: Expected) -> list[str]:
    problems = []
    if report["python"].rpartition(".")[0] != expected.python:
        problems.append(
            f"Python {report['python']} at {report['executable']}, the driver has {expected.python}; "
            "is PYSPARK_PYTHON the same everywhere?"
        )
    if not report["tailrace"]:
        problems.append(
            f"cannot import tailrace into {report['executable']}: {report['tailrace_error']}; "
            f"is PYSPARK_PYTHON a Python that has it, as {sys.executable} does?"
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
    return problems
