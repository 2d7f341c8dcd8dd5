"""Refuses a folder on a local disk where a session's executors are on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailrace.errors import OptionError
from tailrace.runtime.connectors.commits.mounts import local_file_system
from tailrace.spark.calls.driver import _hosts


def check_shared(session: Any, folder: Path, what: str) -> None:
    """Raise OptionError if each machine of the session would have a folder of its own.

    Args:
        session: a classic Spark session.
        folder: the folder; it need not exist.
        what: the name of the option.
    """
    kind, hosts = local_file_system(folder), _hosts(session)
    if kind is not None and hosts > 1:
        raise OptionError(
            f"each machine has a folder of its own: {what}={folder} filesystem={kind} hosts={hosts}, "
            "could it be on a network file system?"
        )
