"""A sink that appends rows to a list on the driver, each once for as long as the driver lives.

Tasks send rows and entries in one message, which the driver side accepts as a whole or not at all: that is the
commit. The list grows without bound, so the sink is for tests, notebooks and small results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar, overload

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import CommittingWriter, Entry, SinkContext
from tailrace.core.protocol.driver_rows import DriverRows, SinkTask
from tailrace.errors import OptionError

_COMMIT_EVERY_NS = 20 * MILLISECOND_NS  # short enough to look immediate in a notebook
_FULL_ROWS = 4096  # rows; a message of this size is far below any limit of a frame

T = TypeVar("T")


class ListSink(Generic[T]):
    """See ``to_list``. This object is the driver side of the sink; its copies in workers hold no rows."""

    committing = True

    def __init__(self, values: list[T]) -> None:
        self.values = values
        self._rows = DriverRows(values.append)
        self._lock = Lock()  # runs that share this sink call it from different threads

    def open(self, context: SinkContext) -> CommittingWriter[T]:
        return ListWriter(context)

    def on_message(self, task: int, epoch: int, message: Any) -> Any:
        """Handle a message of a task. Several operators and several concurrent runs may share one list."""
        job_id, operator, first_epoch, kind, *rest = message
        place = SinkTask(job_id, operator, task, epoch, first_epoch)
        with self._lock:
            return self._rows.commit(place, *rest) if kind == "commit" else self._rows.recover(place, *rest)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__([])  # type: ignore[misc]  # a worker's copy stays empty


class ListWriter:
    """Sends the rows of a task to the driver."""

    commit_every_ns = _COMMIT_EVERY_NS

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._rows: list[Any] = []
        self._prefixes: dict[str, int] = {}

    def write(self, value: Any) -> None:
        self._rows.append(value)

    @property
    def full(self) -> bool:
        return len(self._rows) >= _FULL_ROWS

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        entries: list[Entry] = self._call("recover", dict(prefixes))
        return entries

    def commit(self, entries: Sequence[Entry]) -> None:
        if not self._rows and not entries:
            return
        self._call("commit", self._rows, list(entries), self._prefixes)
        self._rows = []  # a new list: in the same process, the driver holds the old one
        self._prefixes = {}

    def forget(self, prefixes: Mapping[str, int]) -> None:
        self._prefixes = dict(prefixes)  # travels with the next commit

    def close(self) -> None:
        self._rows = []

    def _call(self, kind: str, *rest: Any) -> Any:
        context = self._context
        return context.call_driver(
            context.operator, (context.job_id, context.operator, context.first_epoch, kind, *rest)
        )


@overload
def to_list() -> ListSink[Any]: ...


@overload
def to_list(values: list[T]) -> ListSink[T]: ...


@overload
def to_list(values: None) -> ListSink[Any]: ...


def to_list(values: list[Any] | None = None) -> ListSink[Any]:
    """Append rows to a list on the driver, **each once**.

    Rows of several tasks come in the order of their commits. A second run appends to the same list, also one that
    goes on at the same time. The list grows without limit: this sink is for tests, notebooks and small results.

    Args:
        values: the list; without it the sink makes one, ``sink.values``.

    Example:
        >>> doubles: list[int] = []
        >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
        >>> numbers.map("double", lambda number: 2 * number).sink("out", tr.to_list(doubles))
    """
    if values is not None and not isinstance(values, list):
        raise OptionError(f"not a list: to_list type={type(values).__name__}, did you mean to_call?")
    return ListSink([] if values is None else values)
