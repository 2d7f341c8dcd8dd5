"""What a source and a sink must be able to do. All connector interfaces are on this page.

A connector object is made on the driver, pickled, and opened in the task that uses it. Offsets are strictly
increasing integers within a split (a row number, a byte position, a Kafka offset): together with the split's
name they identify a root for ever, across restarts of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

if TYPE_CHECKING:  # type checkers know defaults of type variables in all versions of Python, Python itself since 3.13
    from typing_extensions import TypeVar

    ReadT = TypeVar("ReadT", covariant=True, default=Any)
    WrittenT = TypeVar("WrittenT", contravariant=True, default=Any)
else:
    from typing import TypeVar

    ReadT = TypeVar("ReadT", covariant=True)
    WrittenT = TypeVar("WrittenT", contravariant=True)


class Record(NamedTuple, Generic[ReadT]):
    """One tuple as a source read it."""

    offset: int
    due_ns: int  # when it should have been emitted; 0 means "now, whenever that is"
    value: ReadT


@dataclass(frozen=True)
class SplitStart:
    """Where to begin reading a split.

    ``offset`` is the first offset wanted. ``last`` is the pickled record before it, if one was read in this
    job, so that a source can check that it is repeatable. ``elapsed_ns`` is the time since sources first began
    in this run: 0 unless this is a restart.
    """

    split: str
    offset: int = 0
    last: bytes | None = None
    elapsed_ns: int = 0


class Reader(Protocol[ReadT]):
    """Reads one split. Used by one thread.

    A reader that wants to know how far its records are safe has a method ``committed(offset)`` besides: everything
    below that offset will never be asked for again. One that gets its records from a thread of its own may have
    ``wake_by(wake)``: it is given a function to call, from any thread, when there is something to poll for; meanwhile
    its ``ready_ns`` may be far away. A source whose readers wait in ``poll`` is declared with ``kind="blocking"``.

    Law: reading from offset *n* gives the records that reading from 0 gave, from *n* on.
    """

    def poll(self, limit: int, now_ns: int) -> Sequence[Record[ReadT]]:
        """Up to ``limit`` records that are there by ``now_ns``. May be empty. Should not block for long."""
        ...

    @property
    def ready_ns(self) -> int:
        """After an empty poll: when it is worth polling again."""
        ...

    @property
    def done(self) -> bool:
        """True once no record will ever follow."""
        ...

    def close(self) -> None: ...


class Source(Protocol[ReadT]):
    """Where roots come from.

    A source whose splits may disappear once they are read, such as files, sets ``splits_may_go = True``. Otherwise a
    run refuses to resume a checkpoint that knows a split which is not there any more.
    """

    @property
    def replayable(self) -> bool:
        """False: positions are not stable, so its own crash gives at most once."""
        ...

    def splits(self, tasks: int) -> Sequence[str]:
        """Names of the splits, stable across restarts. Called on the driver when the run starts."""
        ...

    def open(self, start: SplitStart) -> Reader[ReadT]: ...


class Entry(NamedTuple):
    """What identifies one row at a committing sink."""

    split: str
    offset: int
    lineage: int


@dataclass(frozen=True)
class SinkContext:
    """What a sink's task knows about itself."""

    operator: str
    task: int
    tasks: int
    epoch: int
    job_id: str  # the same for all runs that resume one checkpoint
    call_driver: Callable[[str, Any], Any]  # (operator, message) -> reply of the sink's driver half
    first_epoch: int = 0  # of this run: lower ones belong to earlier runs of the job. 0: this epoch is the first

    def __post_init__(self) -> None:
        if not self.first_epoch:
            object.__setattr__(self, "first_epoch", self.epoch)


class Writer(Protocol[WrittenT]):
    """Writes what one sink task receives. Used by one thread."""

    def write(self, value: WrittenT, /) -> None:
        """Take one row. It need not be visible, or safe, before ``commit``. Raises on a row it cannot take."""
        ...

    def close(self) -> None:
        """Release what ``open`` acquired. Uncommitted rows are discarded."""
        ...


class CommittingWriter(Writer[WrittenT], Protocol[WrittenT]):
    """A writer whose rows become visible together with their entries, or not at all.

    Law: after a crash at any point, ``recover`` in a higher epoch returns exactly the entries whose rows are or
    will be visible, and no ``commit`` of a lower epoch succeeds any more. Lower are the epochs below this one of the
    same task, and those below ``first_epoch`` of any task: rows may come to other tasks when a new run begins.
    """

    @property
    def commit_every_ns(self) -> int:
        """The longest that a row may wait for its commit."""
        ...

    @property
    def full(self) -> bool:
        """True when what was written is enough for a commit, whatever the time."""
        ...

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        """Shut out lower epochs, finish what they had committed, and return the entries at or above the prefixes."""
        ...

    def commit(self, entries: Sequence[Entry]) -> None:
        """Make all rows since the last commit visible, atomically with their entries. Raises ``Fenced``."""
        ...

    def forget(self, prefixes: Mapping[str, int]) -> None:
        """Entries below these offsets will never be asked for again."""
        ...


class Sink(Protocol[WrittenT]):
    """Where rows go."""

    @property
    def committing(self) -> bool:
        """True: ``open`` returns a CommittingWriter."""
        ...

    def open(self, context: SinkContext) -> Writer[WrittenT]: ...


class DriverSink(Sink[WrittenT], Protocol[WrittenT]):
    """A sink with a half that lives on the driver, such as ``to_list``.

    Law: runs that share one sink object keep apart. A message that matters to one job only names its ``job_id``.
    """

    def on_message(self, task: int, epoch: int, message: Any) -> Any:
        """Called on the driver for every ``call_driver`` of a live epoch: one call at a time for each run, but runs
        that go on at the same time call from a thread each."""
        ...
