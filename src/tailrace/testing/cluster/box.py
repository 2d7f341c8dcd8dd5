"""The box: a standalone Spark master, its workers and a driver, each on a machine of its own.

    with Box(hosts=3) as box:
        script = box.start([sys.executable, "job.py", json.dumps(box.conf)])
        box.hosts[0].plug(False)

A machine is a network namespace with an address and a host name; all share processors, files and shared memory. The
network they are on is in a namespace too, so that this machine's own is not touched, and two boxes do not meet.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.errors import TailraceError
from tailrace.testing.cluster.leftovers import end_all, new_mark, sweep
from tailrace.testing.cluster.slowness import Slowness
from tailrace.testing.cluster.wire import Wire, compile_wire
from tailrace.testing.namespaces import EnclosedNamespaces, Machine
from tailrace.testing.processes import wait_until

START_S = 200.0
"""For a JVM to start, on a busy machine."""

PORT = 7077
"""The master's port. It has its machine for itself."""

SMALL_JVM = "-XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Leaves no files of its own in /tmp, also if it is killed; and there are many of them on few processors."""


def why_no_box() -> str | None:
    """The reason why there can be no box here; None if there can."""
    if os.geteuid() != 0:
        return "it takes root"
    missing = [tool for tool in ("ip", "tc", "bridge", "unshare", "java") if shutil.which(tool) is None]
    if missing:
        return f"tools are not installed: missing={','.join(missing)}"
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    try:
        with EnclosedNamespaces(["one", "two"], new_mark()) as network:
            machine = network.machines[0]
            machine.limit(1)
            machine.isolate(True)
            done = subprocess.run([*machine.prefix, "hostname"], capture_output=True, text=True)
            if done.stdout.strip() != "one":
                return f"a machine cannot have a host name: said={done.stderr.strip()!r}"
    except TailraceError as error:
        return str(error)
    return None


class BoxMachine:
    """A machine in the box, and what can be done to it."""

    def __init__(self, machine: Machine, wire: Wire | None) -> None:
        self.name, self.address, self.prefix = machine.host_name or machine.name, machine.address, machine.prefix
        self.plug, self.isolate, self.limit, self.pids = machine.plug, machine.isolate, machine.limit, machine.pids
        self._wire = wire
        self._slowness = Slowness(machine.name, machine.pids)

    def slow(self, cores: float | None) -> None:
        """Leave its processes no more than this of a processor, all together. None: what there is."""
        self._slowness.limit(cores)

    def delay(self, delay_ms: float = 0.0, jitter_ms: float = 0.0, loss: float = 0.0) -> None:
        """Delay what it sends and receives, and lose some. Only in a box with ``wires``."""
        if self._wire is None:
            raise TailraceError(f"the machine has no wire that could delay: name={self.name}; did you say wires=True?")
        self._wire.set(delay_ms, jitter_ms, loss)

    def executors(self) -> list[int]:
        """The JVMs of Spark's executors there."""
        return [pid for pid in self.pids() if b"CoarseGrainedExecutorBackend" in _command_of(pid)]

    def close(self) -> None:
        self._slowness.close()
        if self._wire is not None:
            self._wire.close()


class Box:
    """A context. ``cores`` is how many slots each host has; with ``wires`` packets can be delayed and lost. Without
    ``spark`` there are the machines alone."""

    def __init__(self, hosts: int = 3, cores: int = 2, wires: bool = False, spark: bool = True) -> None:
        self.mark = new_mark()
        self.folder = Path(tempfile.gettempdir(), self.mark)
        """A disk that all machines share, removed at the end."""
        self._names = ["driver", "master", *(f"host{number}" for number in range(hosts))]
        self._cores, self._wires, self._spark = cores, wires, spark
        self._processes: list[subprocess.Popen[Any]] = []
        self._machines: list[BoxMachine] = []
        self._undo = ExitStack()

    @property
    def driver(self) -> BoxMachine:
        return self._machines[0]

    @property
    def master(self) -> BoxMachine:
        return self._machines[1]

    @property
    def hosts(self) -> list[BoxMachine]:
        """Each with a worker of Spark, which starts executors there."""
        return self._machines[2:]

    @property
    def url(self) -> str:
        """The address of the master, as Spark writes it."""
        return f"spark://{self.master.address}:{PORT}"

    @property
    def conf(self) -> dict[str, str]:
        """The configuration of a session of a driver in the box."""
        return {
            "spark.master": self.url,
            "spark.driver.host": self.driver.address,
            "spark.driver.bindAddress": self.driver.address,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": SMALL_JVM,
            "spark.cores.max": str(self._cores * len(self.hosts)),
            "spark.executor.cores": str(self._cores),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SMALL_JVM,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }

    def start(
        self,
        command: Sequence[str],
        machine: BoxMachine | None = None,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a process on a machine, the driver's unless another is given. ``options`` are those of ``Popen``."""
        machine = machine or self.driver
        own = self.folder / machine.name
        own.mkdir(exist_ok=True)
        variables = {
            "SPARK_LOCAL_IP": machine.address,
            "SPARK_LOCAL_DIRS": str(own),
            "SPARK_HOME": str(spark_home()),
            "TMPDIR": str(own),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        given = {**os.environ, **variables, **(environment or {})}
        process: subprocess.Popen[Any] = subprocess.Popen([*machine.prefix, *command], env=given, **options)
        self._processes.append(process)
        return process

    def host_of(self, pid: int) -> BoxMachine:
        """The machine that a process runs on."""
        return next(machine for machine in self._machines if pid in machine.pids())

    def cut_between(self, one: BoxMachine, other: BoxMachine, cut: bool) -> None:
        """Cut two machines off from each other only, or join them again."""
        one.isolate(cut)
        other.isolate(cut)

    def __enter__(self) -> Box:
        sweep()
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.mkdir()
            network = undo.enter_context(EnclosedNamespaces(self._names, self.mark, joined=not self._wires))
            undo.callback(self._end)
            program = compile_wire(self.folder) if self._wires else None
            for machine in network.machines:
                wire = None if program is None else Wire(program, machine)
                self._machines.append(BoxMachine(machine, wire))
                if wire is not None:
                    network.join(machine)
            if self._spark:
                self._start_spark()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def _start_spark(self) -> None:
        self._daemon(self.master, "master.Master", "--port", str(PORT))
        wait_until(lambda: "Starting Spark master at" in self.log(self.master), START_S, "the master")
        for host in self.hosts:
            words = ("--cores", str(self._cores), "--memory", "2g", "--work-dir", str(self.folder / host.name / "work"))
            self._daemon(host, "worker.Worker", *words, self.url)
        for host in self.hosts:
            wait_until(lambda: "Successfully registered" in self.log(host), START_S, f"Spark on {host.name}")  # noqa: B023

    def _daemon(self, machine: BoxMachine, kind: str, *words: str) -> None:
        program = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        environment = {"SPARK_DAEMON_JAVA_OPTS": SMALL_JVM, "SPARK_DAEMON_MEMORY": "256m"}
        with self._log(machine).open("ab") as log:
            command = [*program, "--host", machine.address, "--webui-port", "0", *words]
            self.start(command, machine, environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self, machine: BoxMachine) -> str:
        """The log of Spark's daemon on this machine."""
        return self._log(machine).read_text(errors="replace")

    def _log(self, machine: BoxMachine) -> Path:
        return self.folder / f"{machine.name}.log"

    def _end(self) -> None:
        for machine in self._machines:
            end_all(machine.pids)
        for process in self._processes:
            process.wait()
        for machine in self._machines:
            machine.close()


def spark_home() -> Path:
    """Where Spark is, which comes with pyspark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None, "why_no_box() says so"
    return Path(found.origin).parent


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
