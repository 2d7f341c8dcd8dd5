"""Preparations of the driver for the tasks of a step: where they find the limit and the journal."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tailrace.calls import Calls, Limit
from tailrace.errors import OptionError
from tailrace.runtime.calls.journal_folder import prepare_journal
from tailrace.runtime.calls.limit_server import LimitAddress, limit_address
from tailrace.runtime.driver.run_journals import warn_of_local_journal
from tailrace.spark.calls.caller import TaskCalls, owner_of
from tailrace.spark.run import configuration, place_of, settings_of
from tailrace.spark.shared_folder import hosts_of
from tailrace.spark.slots import most_slots

READ_ON_CONNECT = (
    *("spark.master", "spark.executor.instances", "spark.executor.cores", "spark.cores.max", "spark.task.cpus"),
    *("spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors"),
)
"""Settings that say how many tasks run at once. Spark Connect gives them one by one."""


THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "[::1]")
"""Names of the machine of a Spark Connect server that runs beside its client, as ``remote("local[*]")`` starts one."""

logger = logging.getLogger("tailrace")

_divided: set[str] = set()
"""Limits of which the user was told that they are divided."""


def is_connect(thing: Any) -> bool:
    """Whether a session or a DataFrame is one of Spark Connect."""
    return "connect" in type(thing).__module__.split(".")


def task_calls(
    session: Any, body: Any, name: str, options: Calls, step: bytes, finish: Callable[[Any], Any] | None = None
) -> TaskCalls:
    """How tasks of this session make the calls of a step. ``step`` is what ``step_key`` gave for it."""
    server, tasks = _find_limit(session, options)
    return TaskCalls(body, name, options, server, tasks, _find_journal(session, name, options), step, finish)


def _find_limit(session: Any, options: Calls) -> tuple[LimitAddress | None, int]:
    """Where tasks find the limit of their calls, and among how many it is divided if they do not reach it.

    On Spark Connect the driver is another process, which runs nothing of ours: the limit is divided from the start.
    """
    limit = options.limit
    if limit is None:
        return None, 1
    if is_connect(session):
        return None, _tasks_on_connect(session, limit)
    conf = configuration(session)
    master = session.sparkContext.master
    settings = settings_of(master, conf, {})
    place, encrypt = place_of(master, conf), bool(settings.encrypt)
    tasks = limit.tasks or most_slots(master, conf, os.cpu_count() or 1) or session.sparkContext.defaultParallelism
    return limit_address(limit, place=place, ports=settings.ports, encrypt=encrypt), tasks


def _find_journal(session: Any, name: str, options: Calls) -> Path | None:
    """The folder as tasks see it. On Spark Connect this process may be on another machine, and leaves it alone."""
    if options.journal is None:
        return None
    if is_connect(session):
        folder = Path(options.journal)
        if not folder.is_absolute():
            raise OptionError(
                "a relative path means another folder to each task of Spark Connect: "
                f"journal={folder}: did you mean {folder.absolute()}, and do all executors see it?"
            )
        return folder
    folder = prepare_journal(options.journal, owner_of(name))
    warn_of_local_journal(folder, len(hosts_of(session)))
    return folder


def _tasks_on_connect(session: Any, limit: Limit) -> int:
    """Among how many tasks the limit is divided. Raises OptionError if no one knows."""
    conf = _settings(session)
    master = conf.get("spark.master", "")
    tasks = limit.tasks or most_slots(master, conf, os.cpu_count() if session.client.host in THIS_MACHINE else None)
    if not tasks:
        raise OptionError(
            "a limit cannot be divided among tasks, as Spark does not tell how many run at once: "
            f"limit={limit.name} master={master or None}: could you say tr.limit(…, tasks=N), where N is the cores of "
            "all executors together?"
        )
    if limit.concurrency is not None and limit.concurrency < tasks:
        raise OptionError(
            "a limit allows fewer calls at once than there are tasks, which cannot share it on Spark Connect: "
            f"limit={limit.name} concurrency={limit.concurrency} tasks={tasks}: could fewer tasks call, as with "
            f"df.coalesce({limit.concurrency}) and tr.limit(…, tasks={limit.concurrency})?"
        )
    if limit.tasks is None and limit.name not in _divided:
        _divided.add(limit.name)
        logger.warning(
            "a limit is not shared on Spark Connect, each task keeps its part of it: limit=%s tasks=%d: "
            "do several steps or queries use it at once? Then say the tasks of all, tr.limit(…, tasks=N)",
            *(limit.name, tasks),
        )
    return tasks


def _settings(session: Any) -> dict[str, str]:
    found = {name: session.conf.get(name, None) for name in READ_ON_CONNECT}
    return {name: value for name, value in found.items() if value is not None}
