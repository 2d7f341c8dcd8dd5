"""What the driver prepares for the tasks of a step: where they find the limit and the journal."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tailrace.calls import Calls
from tailrace.errors import OptionError
from tailrace.runtime.calls.journal_folder import prepare_journal
from tailrace.runtime.calls.limit_server import LimitAddress, limit_address
from tailrace.runtime.driver.run_journals import warn_of_local_journal
from tailrace.spark.calls.caller import TaskCalls, owner_of
from tailrace.spark.run import configuration, place_of, settings_of
from tailrace.spark.shared_folder import hosts_of
from tailrace.spark.slots import total_slots

READ_ON_CONNECT = (
    *("spark.master", "spark.executor.instances", "spark.executor.cores", "spark.cores.max", "spark.task.cpus"),
    "spark.dynamicAllocation.enabled",
)
"""Settings that say how many tasks run at once. Spark Connect gives them one by one."""


def is_connect(thing: Any) -> bool:
    """Whether a session or a DataFrame is one of Spark Connect."""
    return "connect" in type(thing).__module__.split(".")


def task_calls(
    session: Any, body: Any, name: str, options: Calls, finish: Callable[[Any], Any] | None = None
) -> TaskCalls:
    """How tasks of this session make the calls of a step."""
    server, tasks = _find_limit(session, options)
    return TaskCalls(body, name, options, server, tasks, _find_journal(session, name, options), finish)


def _find_limit(session: Any, options: Calls) -> tuple[LimitAddress | None, int]:
    """Where tasks find the limit of their calls, and among how many it is divided if they do not reach it.

    On Spark Connect the driver is another process, which runs nothing of ours: the limit is divided from the start.
    """
    if options.limit is None:
        return None, 1
    if is_connect(session):
        return None, _slots(_settings(session))
    conf = configuration(session)
    master = session.sparkContext.master
    settings = settings_of(master, conf, {})
    place, encrypt = place_of(master, conf), bool(settings.encrypt)
    return limit_address(options.limit, place=place, ports=settings.ports, encrypt=encrypt), _slots(conf)


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


def _slots(conf: dict[str, str]) -> int:
    slots = total_slots(conf.get("spark.master", ""), conf, os.cpu_count() or 1)
    return max(1, slots or int(conf.get("spark.default.parallelism", "1")))


def _settings(session: Any) -> dict[str, str]:
    found = {name: session.conf.get(name, None) for name in (*READ_ON_CONNECT, "spark.default.parallelism")}
    return {name: value for name, value in found.items() if value is not None}
