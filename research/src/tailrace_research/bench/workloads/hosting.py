"""The host of a workload's workers: this program, or within a block a Spark session.

Law: a workload, and the figures that are made of its outcome, are the same under any host.
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
