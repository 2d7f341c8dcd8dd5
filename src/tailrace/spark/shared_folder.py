"""Refuses a folder that the machines of a cluster do not share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailrace.errors import OptionError
from tailrace.runtime.connectors.commits.mounts import local_file_system
from tailrace.spark.calls.driver import _hosts
from tailrace.spark.slots import is_local


def check_shared(session: Any, folder: Path, what: str) -> None:
    """Raise OptionError if executors are on several machines and the folder is on a disk of this one."""
    hosts = 1 if is_local(session.sparkContext.master) else _hosts(session)
    kind = local_file_system(folder)
    if hosts > 1 and kind is not None:
        raise OptionError(
            f"other machines do not see this folder: {what}={folder} filesystem={kind} hosts={hosts}: "
            f"could {what} be on a disk that all of them share?"
        )
