"""The function that runs inside a Spark task: its Python process becomes a worker until the coordinator dismisses it.

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
"""Schema of the task's result: why no worker can run there, or null. Kept trivial, because a column of another type
than declared causes obscure failures in the JVM."""

LOOK_S = 1.0
"""How often a speculative copy checks whether the run is still active."""


def entry(bootstrap: Bootstrap, path: list[str], version: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function for ``mapInArrow``. It ignores its input and yields one row, at the end.

    As a local function it is pickled by value, and it checks for the package before using it. It can therefore report
    an executor that lacks the package or has another version.
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
    """Run a worker until it is dismissed, and restore the process afterwards: Spark reuses it for other tasks."""
    bootstrap: Bootstrap = pickle.loads(pickled)
    switch_s, on_interrupt = sys.getswitchinterval(), signal.getsignal(signal.SIGINT)
    try:
        serve(bootstrap)
    except Refused as refusal:
        if A_COPY in str(refusal):
            outlast(bootstrap)
    except (OSError, ProtocolError):
        pass  # the run is over, or a retry by Spark of an old epoch was refused
    finally:
        gc.unfreeze()
        sys.setswitchinterval(switch_s)
        signal.signal(signal.SIGINT, on_interrupt)


def outlast(bootstrap: Bootstrap) -> None:
    """Wait for the end of the run, in a speculative copy: if it ended first, Spark would kill the original task."""
    hello = {"role": "worker", "worker": bootstrap.worker, "epoch": bootstrap.epoch}
    while True:
        try:
            dial(bootstrap.address, bootstrap.secret, hello, bootstrap.fingerprint).connection.close()
        except Refused as refusal:
            if A_COPY not in str(refusal):
                return
        except (OSError, ProtocolError):
            return
        time.sleep(LOOK_S)
