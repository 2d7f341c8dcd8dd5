"""Finds out whether all tasks of a file sink write to one folder, or each to a disk of its own machine.

A path is the same everywhere, and what lies behind it may not be. Then rows would lie about on several machines, and a
task that is started again on another one would not find what it has committed, and commit it again. So each task tells
the driver that it has entered its staging directory, and is told who has before it in this run. It must see their
directories, as that of a task's highest epoch is never deleted. If its folder is on a local disk the driver has to see
its directory too; a driver that does not mount a network file system need not.

This is a proof, which a look at the kind of file system is not: containers and network namespaces may share a disk.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from tailrace.connector import SinkContext
from tailrace.errors import OptionError
from tailrace.runtime.connectors.commits.files import PartFiles, home_of
from tailrace.runtime.connectors.commits.mounts import local_file_system
from tailrace.runtime.connectors.commits.staging import places_in

LOOK_S = 1.0
"""How long a task looks for a directory on a local disk: a listing that is taken during a rename may show no name."""

LOOK_FAR_S = 10.0
"""The same on any other file system, whose clients may remember for a while what was there."""


class Entered(NamedTuple):
    """A task has entered its staging directory."""

    job_id: str
    operator: str
    first_epoch: int
    task: int
    epoch: int
    host: str
    file_system: str | None  # the kind, if it is a local one


class Witness:
    """The driver side: which tasks have entered, by run and operator. A copy in a worker is empty."""

    def __init__(self) -> None:
        self._entered: dict[tuple[str, str, int], dict[int, Entered]] = {}
        self._lock = Lock()  # runs that share a sink call from different threads

    def entered(self, directory: Path, news: Entered) -> list[Entered]:
        """Note this. Returns the newest of each task that was noted before.

        Raises OptionError if the task's folder is on a local disk and is not the driver's.
        """
        with self._lock:
            known = self._entered.setdefault((news.job_id, news.operator, news.first_epoch), {})
            before = list(known.values())
            known[news.task] = news
        here = Entered("", "", 0, 0, 0, socket.gethostname(), None)
        if news.file_system is not None and not _is_there(directory, news, None):
            raise _apart(directory, here, news, before, news.file_system)
        return before

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


def open_part_files(directory: Path, extension: str, context: SinkContext) -> PartFiles:
    """The files of a sink's task. The sink's driver side gives its ``on_message`` to a ``Witness``.

    Raises OptionError if this task and others of the sink, or the driver, do not see the same folder.
    """
    files = PartFiles(directory, extension, context)
    kind = local_file_system(directory)
    place = context.job_id, context.operator, context.first_epoch, context.task, context.epoch
    news = Entered(*place, socket.gethostname(), kind)
    before: list[Entered] = context.call_driver(context.operator, news) or []
    deadline = time.monotonic() + (LOOK_FAR_S if kind is None else LOOK_S)
    for other in before:
        while not _is_there(directory, other, news):
            if time.monotonic() > deadline:
                raise _apart(directory, news, other, before, kind)
            time.sleep(0.01)
    return files


def _is_there(directory: Path, wanted: Entered, own: Entered | None) -> bool:
    """Whether this process sees the staging directory of a task, or a later one of it. ``own`` does not count."""
    try:
        places = places_in(home_of(directory, wanted.operator, wanted.job_id) / "staging")
    except FileNotFoundError:
        return False
    mine = None if own is None else (own.task, own.epoch)
    return any(
        place.task == wanted.task and place.epoch >= wanted.epoch and (place.task, place.epoch) != mine
        for place in places
    )


def _apart(directory: Path, blind: Entered, other: Entered, before: list[Entered], kind: str | None) -> OptionError:
    hosts = max(2, len({entered.host for entered in (blind, other, *before)}))
    return not_shared(f"sink={blind.operator or other.operator}", directory, kind, hosts, blind.host, other.host)


def not_shared(what: str, folder: Path, kind: str | None, hosts: int, blind: str, other: str) -> OptionError:
    """The sentence that refuses a folder. ``blind`` is a machine that does not see what ``other`` has made there."""
    return OptionError(
        f"machines do not share a folder: {what} folder={folder} filesystem={kind or 'unknown'} hosts={hosts}: "
        f"{blind} does not see there what {other} has made; could it be on a file system that all of them mount?"
    )
