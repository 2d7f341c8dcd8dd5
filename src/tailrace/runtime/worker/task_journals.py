"""The journals of a worker's tasks: what identifies their calls, and which results are needed no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.calls.journal_keys import Place, tuple_key
from tailrace.core.failures import task_error
from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.core.tasks.open_bundle import Call
from tailrace.runtime.calls.journal_files import FileJournal, open_journal
from tailrace.runtime.calls.journal_folder import topology_owner


class TaskJournal:
    """The journal of one task, and what its calls are called in there."""

    def __init__(self, results: FileJournal, operator: str, task: int, salts: Sequence[int]) -> None:
        self.results = results
        self._operator = operator
        self._task = task
        self._salts = salts  # by split index

    def key_of(self, call: Call) -> bytes:
        """The key of a call in the journal. Raises TaskError for a tuple that nothing can be identified by."""
        assert call.lineage is not None, "the plan has lineages on edges to operators with a journal"
        try:
            return tuple_key(self._operator, self._place(call), call.lineage, call.value)
        except TypeError as error:
            raise task_error(self._operator, self._task, call.value, error) from None

    def is_durable(self, call: Call) -> bool:
        """Whether all that follows from the root of this call is durable, so that its result is of no use.

        Such a tuple is left over from an emission before the last. Its result may have been dropped.
        """
        return self.results.is_durable(self._place(call))

    def _place(self, call: Call) -> Place:
        return Place(self._salts[call.bundle.split], call.bundle.offset)


class TaskJournals:
    """Opens the journals of one worker's tasks, and has them drop what is durable downstream."""

    def __init__(self, plan: Plan, epoch: int) -> None:
        self._plan = plan
        self._epoch = epoch
        self._salts = [split.salt for split in plan.splits]
        self._opened: list[FileJournal] = []

    def open(self, operator: OperatorPlan, number: int) -> TaskJournal:
        """Open the journal of a task."""
        calls = operator.operator.calls
        assert calls is not None and calls.journal is not None, operator
        task = self._plan.task_index(number)
        writer = f"{operator.name}-{task}-e{self._epoch}"
        results = open_journal(Path(calls.journal), writer, owner=topology_owner(self._plan.name), keep=calls.keep)
        self._opened.append(results)
        return TaskJournal(results, operator.name, task, self._salts)

    def committed(self, offsets: Mapping[int, int]) -> None:
        """These prefixes are stored, by split index: no later run will begin below them. From any thread."""
        prefixes = {self._salts[split]: offset for split, offset in offsets.items()}
        for results in tuple(self._opened):
            results.drop_below(prefixes)
