"""Who hosts the workers of workloads: this program, or within a block a Spark session.

Law: a workload and what is made of its outcome are the same, whoever hosts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_session: ContextVar[Any] = ContextVar("session", default=None)


@contextmanager
def hosted_by(spark: Any) -> Iterator[None]:
    """None: plain processes. A session's executors must be on this machine: latencies are taken by its clock."""
    before = _session.set(spark)
    try:
        yield
    finally:
        _session.reset(before)


def host() -> Any:
    return _session.get()
