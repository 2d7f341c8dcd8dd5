"""Folders that the driver, executors and workers share: how Spark is told of them, and whether all of them see them."""

from __future__ import annotations

import logging
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.errors import OptionError, shorten
from tailrace.runtime.connectors.commits.disk import make_directory
from tailrace.runtime.connectors.commits.mounts import local_file_system
from tailrace.runtime.connectors.commits.witness import not_shared
from tailrace.spark.slots import is_local

TOKEN = ".tailrace-token-"
"""Begins the name of the file by which executors recognize a folder. It is hidden from Spark, and deleted at once."""

ANSWER_S = 60.0
"""How long executors have to answer. If their slots are all taken they do not, which is not their fault."""

_log = logging.getLogger("tailrace")


_PATTERN = re.compile(r"[{}\[\]*?\\]")


def path_to_read(folder: Path) -> str:
    """A folder as readers of Spark are told of it, which take some characters for a pattern."""
    return path_to_write(Path(_PATTERN.sub(r"\\\g<0>", str(folder))))


def check_streamable(folder: Path) -> None:
    """Raise OptionError for a folder of which Spark reads a stream wrongly.

    It takes the names of files that it has found for patterns, where they have such characters, and for each of them
    reads all files of the micro-batch: rows of two files come twice, those of three files three times.
    """
    found = sorted(set(_PATTERN.findall(str(folder))))
    if found:
        raise OptionError(
            f"Spark reads rows several times from a folder with such a name: folder={folder} "
            f"characters={' '.join(found)}: could it be called otherwise?"
        )


def path_to_write(folder: Path) -> str:
    """A folder as writers of Spark are told of it: each character stands for itself, also where HDFS is the default."""
    return f"file://{folder}"


def hosts_of(session: Any) -> list[str]:
    """The addresses of the machines that the application has now: those of its executors, and the driver's."""
    places = str(session.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet().mkString(",")).split(",")
    return sorted({place.rpartition(":")[0] for place in places})


def check_shared(session: Any, folder: Path, what: str) -> None:
    """Raise OptionError if executors of the session do not see a folder of the driver. Leaves nothing behind.

    They are asked, in a small Spark job, if they are on several machines and the driver has the folder on a local disk.
    Executors that come later are not. ``what`` wants the folder, and is named.
    """
    if not hasattr(session, "sparkContext") or "connect" in type(session).__module__.split("."):
        return  # this process is not the driver
    if is_local(session.sparkContext.master):
        return
    kind = local_file_system(folder)
    hosts = hosts_of(session)
    if kind is None or len(hosts) < 2:
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    make_directory(folder)
    token = folder / f"{TOKEN}{uuid.uuid4().hex}"
    try:
        token.touch()
        blind = _blind_hosts(session, token)
    finally:
        token.unlink(missing_ok=True)
        for path in missing:
            with suppress(OSError):  # somebody else has put something there
                path.rmdir()
    if blind:
        raise not_shared(what, folder, kind, len(hosts), blind[0], socket.gethostname())


def _blind_hosts(session: Any, token: Path) -> list[str]:
    """Names of machines on which an executor does not see a file of the driver."""
    context = session.sparkContext
    tasks = 2 * context._jsc.sc().getExecutorMemoryStatus().size()  # Spark deals them out to executors in turn
    tag = token.name
    context.addJobTag(tag)
    late = threading.Timer(ANSWER_S, context.cancelJobsWithTag, [tag])
    late.daemon = True
    late.start()
    try:
        rows = session.range(0, tasks, 1, tasks).mapInArrow(_looking_for(str(token)), "host string, sees boolean")
        return sorted({row.host for row in rows.collect() if not row.sees})
    except Exception as error:  # no proof of anything
        _log.warning(
            "executors do not say whether they see a folder: folder=%s cause=%s; are all slots taken?",
            token.parent,
            shorten(str(error).partition("\n")[0]),
        )
        return []
    finally:
        late.cancel()
        context.removeJobTag(tag)


def _looking_for(token: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A local function, so that it is pickled by value: executors need not have this package."""

    def look(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import socket

        import pyarrow as pa

        for _ in batches:
            pass
        found = {"host": [socket.gethostname()], "sees": [os.path.exists(token)]}  # noqa: PTH110
        yield pa.RecordBatch.from_pydict(found)

    return look
