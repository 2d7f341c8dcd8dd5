"""What the tests of this folder share: sessions, one at a time, and ways to find the processes behind them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import tailrace as tr
from tailrace.spark.session import local_session
from tailrace.testing.processes import is_alive, wait_until

MASTER = "local[4,8]"
SPARK_HOME = Path(pyspark.__file__).parent

DRIVER = f"""\
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import tailrace as tr
from tailrace.spark.session import local_session
from kit.runs import durable, recoveries, row, slowly
"""
"""How a driver script begins."""

OWN_SESSION = (
    DRIVER
    + """
import os, signal, threading
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
builder = builder.config("spark.python.task.killTimeout", "100ms")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
"""
)
"""How one begins whose session is the user's own."""


class Sessions:
    """A process can have one Spark context at a time: whoever asks for another master ends the one before."""

    def __init__(self) -> None:
        self._key: tuple[Any, ...] = ()
        self._session: SparkSession | None = None

    def get(self, master: str, **conf: str) -> SparkSession:
        key = (master, *sorted(conf.items()))
        if self._session is None or key != self._key or self._session.sparkContext._jsc is None:
            self.stop()
            self._session, self._key = self._start(master, conf), key
        return self._session

    def _start(self, master: str, conf: dict[str, str]) -> SparkSession:
        if master == MASTER and not conf:
            return local_session(4)
        builder = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false")
        for name, value in conf.items():
            builder = builder.config(name.replace("_", "."), value)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        return session

    def stop(self) -> None:
        if self._session is not None and self._session.sparkContext._jsc is not None:
            self._session.stop()
        self._session = None


@contextmanager
def running_on(spark: Any, topology: tr.Topology, **options: Any) -> Iterator[tr.Run]:
    """A run whose workers are up. Given up at the end, if it still goes on then."""
    run: tr.Run = topology.run(spark, **options)
    try:
        assert run.awaitRunning(60)
        yield run
    finally:
        if run.isActive:
            run.stop(timeout=0.1)


@contextmanager
def standalone_cluster(
    sessions: Sessions, folder: Path, address: str, hosts: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, list[int]]]:
    """A master at an address, and on each host a worker of Spark with two cores: (url, pids of the workers).

    Hosts are addresses, each with how a command line begins that shall run there.
    """
    sessions.stop()
    processes: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_WORKER_DIR": str(folder / "work")}
    text = folder / "standalone.log"
    log = text.open("wb")

    def start(kind: str, *arguments: str, prefix: Sequence[str] = ()) -> int:
        command = [*prefix, str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host"]
        process = subprocess.Popen([*command, *arguments], env=environment, stdout=log, stderr=log)
        processes.append(process)
        return process.pid

    try:
        start("master.Master", address, "--port", "0", "--webui-port", "0")
        wait_until(lambda: "Starting Spark master at" in text.read_text(), 60, "the master")
        line = next(line for line in text.read_text().splitlines() if "Starting Spark master at" in line)
        url = line.rpartition(" ")[2]
        options = ("--cores", "2", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / "work"), url)
        workers = [start("worker.Worker", host, *options, prefix=prefix) for host, prefix in hosts.items()]
        wait_until(
            lambda: text.read_text().count("Successfully registered with master") == len(hosts), 60, "Spark's workers"
        )
        yield url, workers
    finally:
        sessions.stop()
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.close()


def end_gateway() -> None:
    """End the JVM behind this process's sessions: stopping a session leaves it for the next one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # type: ignore[attr-defined]
        gateway.proc.wait(30)  # type: ignore[attr-defined]
        SparkContext._gateway = SparkContext._jvm = None


def ancestors(pid: int) -> list[int]:
    """The parents of a process, nearest first."""
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


def executor_of(pid: int) -> int:
    """The executor JVM whose Python daemon has forked this process."""
    for parent in ancestors(pid):
        if b"CoarseGrainedExecutorBackend" in command_of(parent):
            return parent
    raise AssertionError(f"no executor is a parent of the process: pid={pid} parents={ancestors(pid)}")


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def seconds_until_gone(pids: list[int], timeout_s: float) -> float:
    begun = time.monotonic()
    while any(is_alive(pid) for pid in pids):
        left = [(pid, command_of(pid)[:80]) for pid in pids if is_alive(pid)]
        assert time.monotonic() - begun < timeout_s, f"processes are left behind: {left}"
        time.sleep(0.02)
    return time.monotonic() - begun
