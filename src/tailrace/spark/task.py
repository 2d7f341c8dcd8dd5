"""What runs inside a Spark task: the task's Python process becomes a worker until it is let go.

This module is imported on executors, so it imports nothing of Spark.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tailrace.errors import ProtocolError, Refused
from tailrace.runtime.auth import dial
from tailrace.runtime.control import A_COPY, Bootstrap
from tailrace.runtime.worker import serve

SCHEMA = "worker int"
"""Of the control result. Kept trivial: a column of another type than announced fails obscurely in the JVM."""

LOOK_S = 1.0
"""How often a copy looks whether the run goes on."""


def as_worker(bootstrap: Bootstrap, path: list[str], batches: Iterable[Any]) -> Iterator[Any]:
    """The function of ``mapInArrow``. Whatever it is given, it yields one row, at the end."""
    import pyarrow as pa

    for _ in batches:
        pass
    sys.path.extend(entry for entry in path if entry not in sys.path)
    try:
        serve(bootstrap)
    except Refused as refusal:
        if A_COPY in str(refusal):
            outlast(bootstrap)
    except (OSError, ProtocolError):
        pass  # the run is over, or this attempt is older than the coordinator's memory of it
    yield pa.RecordBatch.from_arrays([pa.array([bootstrap.worker], pa.int32())], names=["worker"])


def outlast(bootstrap: Bootstrap) -> None:
    """A copy that Spark started on speculation must not end before the original, or Spark would kill that one."""
    hello = {"role": "worker", "worker": bootstrap.worker, "epoch": bootstrap.epoch}
    while True:
        try:
            dial(bootstrap.address, bootstrap.secret, hello).close()
        except Refused as refusal:
            if A_COPY not in str(refusal):
                return
        except (OSError, ProtocolError):
            return
        time.sleep(LOOK_S)
