"""What runs inside a Spark task: the task's Python process becomes a worker until it is let go.

This module is imported on executors, so it imports nothing of Spark.
"""

from __future__ import annotations

import gc
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tailrace.errors import ProtocolError, Refused
from tailrace.runtime.links.auth import dial
from tailrace.runtime.links.control import A_COPY, Bootstrap
from tailrace.runtime.worker.process import serve

SCHEMA = "why string"
"""Of the control result: why no worker can be here, or null. Kept trivial: a column of another type than announced
fails obscurely in the JVM."""

LOOK_S = 1.0
"""How often a copy looks whether the run goes on."""


def entry(bootstrap: Bootstrap, path: list[str], version: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function of ``mapInArrow``. Whatever it is given, it yields one row, at the end.

    It is pickled by value, being a local function, and looks for the package before it needs it: so it can say what is
    wrong on an executor that has none, or another one.
    """
    pickled = pickle.dumps(bootstrap)
    driver = f"driver={version} driver_python={sys.executable}"

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib
        import socket
        import sys

        import pyarrow as pa

        for _ in batches:
            pass
        sys.path.extend(entry for entry in path if entry not in sys.path)
        here = f"executor={socket.gethostname()} python={sys.executable}"
        why = None
        try:
            found = importlib.import_module("tailrace").__version__
        except ImportError as error:
            question = "is PYSPARK_PYTHON a Python that has it?"
            why = f"an executor cannot import tailrace: {here} {driver} cause={error}; {question}"
        else:
            if found != version:
                question = "is PYSPARK_PYTHON another Python, or one of them old?"
                why = f"an executor has another tailrace: {here} version={found} {driver}; {question}"
            else:
                importlib.import_module("tailrace.spark.task").as_worker(pickled)
        yield pa.RecordBatch.from_arrays([pa.array([why], pa.string())], names=["why"])

    return task


def as_worker(pickled: bytes) -> None:
    """Be a worker until let go, and leave the process to Spark as it was: Spark keeps it for other tasks."""
    bootstrap: Bootstrap = pickle.loads(pickled)
    switch_s, on_interrupt = sys.getswitchinterval(), signal.getsignal(signal.SIGINT)
    try:
        serve(bootstrap)
    except Refused as refusal:
        if A_COPY in str(refusal):
            outlast(bootstrap)
    except (OSError, ProtocolError):
        pass  # the run is over, or this attempt is older than the coordinator's memory of it
    finally:
        gc.unfreeze()
        sys.setswitchinterval(switch_s)
        signal.signal(signal.SIGINT, on_interrupt)


def outlast(bootstrap: Bootstrap) -> None:
    """A copy that Spark started on speculation must not end before the original, or Spark would kill that one."""
    hello = {"role": "worker", "worker": bootstrap.worker, "epoch": bootstrap.epoch}
    while True:
        try:
            dial(bootstrap.address, bootstrap.secret, hello).connection.close()
        except Refused as refusal:
            if A_COPY not in str(refusal):
                return
        except (OSError, ProtocolError):
            return
        time.sleep(LOOK_S)
