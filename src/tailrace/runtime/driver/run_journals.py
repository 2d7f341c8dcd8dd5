"""The journals of a run, on the driver: checked before it begins, and removed when it has finished."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.runtime.calls.journal_folder import JournalHold, prepare_journal, topology_owner
from tailrace.runtime.connectors.commits.mounts import local_file_system

_log = logging.getLogger("tailrace")


def warn_of_local_journal(folder: Path, hosts: int) -> None:
    """Log a warning if so many machines would each have a journal of their own."""
    kind = local_file_system(folder)
    if hosts > 1 and kind is not None:
        _log.warning(
            "each machine has a journal of its own: journal=%s filesystem=%s hosts=%d: a call is made again when its "
            "tuple or row comes to another machine; could the folder be on a network file system?",
            folder,
            kind,
            hosts,
        )


class RunJournals:
    """The folders in which the operators of a run keep the results of calls.

    A folder whose results are dropped belongs to this run alone. It is removed when the run has finished, as everything
    is durable then; a run that failed leaves it for the next.
    """

    def __init__(self, plan: Plan) -> None:
        owner = topology_owner(plan.name)
        self._holds: dict[Path, JournalHold] = {}
        kept: set[Path] = set()  # for good
        folders: dict[str, Path] = {}
        for operator in plan.operators:
            calls = operator.operator.calls
            if calls is not None and calls.journal is not None:
                folder = folders[operator.name] = prepare_journal(calls.journal, owner)
                if calls.keep:
                    kept.add(folder)
        try:
            for folder in set(folders.values()) - kept:
                self._holds[folder] = JournalHold(folder)
        except BaseException:
            self.release(finished=False)
            raise
        self._folders = sorted(set(folders.values()))
        self._warned = False
        self.plan = replace(plan, operators=tuple(_placed(op, folders.get(op.name)) for op in plan.operators))

    def warn_of_hosts(self, hosts: Collection[str]) -> None:
        """Warn, once, if workers are on several machines and a folder is on a disk of one of them.

        ``hosts``: of the workers; an empty name if it is not known yet.
        """
        if self._warned or len(set(hosts) - {""}) < 2:
            return
        self._warned = True
        for folder in self._folders:
            warn_of_local_journal(folder, len(set(hosts) - {""}))

    def release(self, *, finished: bool) -> None:
        """The run is over. ``finished``: all that it has read is durable."""
        while self._holds:
            self._holds.popitem()[1].release(remove=finished)


def _placed(operator: OperatorPlan, folder: Path | None) -> OperatorPlan:
    """The operator with the absolute path of its journal, as workers may have another working directory."""
    if folder is None:
        return operator
    assert operator.operator.calls is not None
    calls = replace(operator.operator.calls, journal=folder)
    return replace(operator, operator=replace(operator.operator, calls=calls))
