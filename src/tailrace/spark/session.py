"""Starts Spark sessions with settings that suit Tailrace, and finds their Java."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.errors import OptionError, TailraceError, shorten
from tailrace.policy.numbers import is_whole
from tailrace.spark.slots import is_local

JAVA_NEEDED = 17
JAVA_S = 30.0
"""Timeout of ``java -version``, which takes a fraction of a second, or a few on a busy machine."""

MOST_SLOTS = 10_000
SLOTS_AT_LEAST = 4
"""Each worker occupies a slot for its lifetime, and Spark's own jobs need some too. Slots may outnumber the cores."""

FAILURES = 8
"""Failures allowed per task. Plain ``local[N]`` allows none."""

# Silences Spark's stack traces of killed workers, which the run reports itself. The gateway's level must equal the
# root's, or Spark changes it and logs that.
QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.pythonsql.name = org.apache.spark.sql.execution.python
logger.pythonsql.level = off
"""


def local_session(
    cores: int | None = None, app_name: str = "tailrace", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session on this machine, set up for Tailrace. A session that runs already is returned as it is.

    Args:
        cores: how many slots it has; each worker takes one. The default is one for each processor, but at least
            enough for the examples.
        app_name: the name in Spark's user interface.
        conf: further settings of Spark.

    Example:
        >>> spark = tr.local_session(cores=2)
        >>> spark.range(3).count()
        3
    """
    running = running_session()
    if running is not None:
        return running
    if cores is not None and not (is_whole(cores) and 1 <= cores <= MOST_SLOTS):
        raise OptionError(
            f"cores must be a whole number from 1 to {MOST_SLOTS}: cores={shorten(cores)}; is it computed?"
        )
    problem = java_problem()
    if problem is not None:
        raise OptionError(problem)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="tailrace-log4j-") as folder:  # read once, when the JVM starts
        logging = Path(folder) / "log4j2.properties"
        logging.write_text(QUIET)
        slots = cores or max(os.cpu_count() or 1, SLOTS_AT_LEAST)
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.python.task.killTimeout": "100ms",
            **(conf or {}),
        }
        spark = _start(f"local[{slots},{FAILURES}]", app_name, settings)
    _let_interrupts_be()
    return spark


def open_session(master: str, conf: Mapping[str, str], app_name: str = "tailrace") -> SparkSession:
    """A session with this master, for the command line. Spark's log of lost workers is off: the run reports them."""
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false", **conf}
    try:
        spark = _start(master, app_name, settings)
    except Exception as error:
        causes = [line.removeprefix(": ") for line in str(error).splitlines() if line.startswith(": ")]
        why = causes[0] if causes else str(error).partition("\n")[0]
        raise TailraceError(f"no Spark session: master={master}; {why}; is a Spark master there?") from error
    _let_interrupts_be()
    return spark


def _start(master: str, app_name: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with interrupts_held():
        return builder.getOrCreate()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay a first Ctrl-C until the end of the block: interrupted while starting, PySpark would leave a JVM behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, held = signal.getsignal(signal.SIGINT), threading.Event()

    def hold(number: int, frame: object) -> None:
        held.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held.is_set():
        raise KeyboardInterrupt


def running_session() -> SparkSession | None:
    """The active session of this process, or None."""
    session = SparkSession._instantiatedSession
    if session is None or session._sc._jsc is None:
        return None
    return session


def _let_interrupts_be() -> None:
    """Remove PySpark's handler of Ctrl-C, which cancels all jobs, and so every worker: the run could not be drained."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def java_problem() -> str | None:
    """Why Spark cannot start a JVM on this machine, in one sentence; None if it can."""
    java = find_java()
    home = os.environ.get("JAVA_HOME")
    if java is None:
        where = f"JAVA_HOME={home}" if home else "JAVA_HOME= and none on PATH"
        return f"no Java found: {where}; Spark needs Java {JAVA_NEEDED} or later, is a JRE installed?"
    version, text = java_version(java)
    if version is None:
        return f"Java does not say its version: java={java} said={text!r}; does it run at all?"
    if version < JAVA_NEEDED:
        needed = f"Spark needs Java {JAVA_NEEDED} or later"
        return f"Java is too old: java={java} version={version}; {needed}, does JAVA_HOME point to another?"
    return None


def find_java() -> str | None:
    """The ``java`` that Spark's scripts would run."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def java_version(java: str) -> tuple[int | None, str]:
    """The major version (8 for 1.8; None if unknown), and the first line that ``java -version`` printed."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    said = (run.stderr + run.stdout).strip()
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return (int(found[1]) if found else None), said.partition("\n")[0]
