"""The interfaces of sources and sinks: what each must be able to do. All of them are on this page.

A connector object is made on the driver, pickled, and opened in the task that uses it. Offsets are strictly
increasing integers within a split (a row number, a byte position, a Kafka offset): together with the split's
name they identify a root for ever, across restarts of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:  # type checkers know defaults of type variables in all versions of Python, Python itself since 3.13
    from typing_extensions import TypeVar

    ReadT = TypeVar("ReadT", covariant=True, default=Any)
    WrittenT = TypeVar("WrittenT", contravariant=True, default=Any)
else:
    from typing import TypeVar

    ReadT = TypeVar("ReadT", covariant=True)
    WrittenT = TypeVar("WrittenT", contravariant=True)


class Record(NamedTuple, Generic[ReadT]):
    """One tuple as a source read it.

    Args:
        offset: its place in the split; offsets rise strictly.
        due_ns: when it should have been emitted. 0: when it is read.
        value: the tuple.

    Example:
        >>> from tailrace.connector import Record
        >>> Record(offset=0, due_ns=0, value="the mill").value
        'the mill'
    """

    offset: int
    due_ns: int
    value: ReadT


@dataclass(frozen=True)
class SplitStart:
    """Where to begin reading a split.

    Args:
        split: the split's name.
        offset: the first offset wanted.
        last: the pickled record before it, if one was read in this job. It lets a source check that it is repeatable.
        elapsed_ns: the time since sources first began in this run: 0 unless this is a restart.

    Example:
        >>> from tailrace.connector import SplitStart
        >>> SplitStart("0/1", offset=100).offset
        100
    """

    split: str
    offset: int = 0
    last: bytes | None = None
    elapsed_ns: int = 0


class Reader(Protocol[ReadT]):
    """Reads one split of a source. Used by one thread.

    A reader may have the members of ``ReaderExtras`` besides. A source whose readers wait in ``poll`` is declared with
    ``kind="blocking"``.

    Law: reading from offset *n* gives the records that reading from 0 gave, from *n* on.

    Example:
        >>> from tailrace.connector import SplitStart
        >>> reader = tr.from_iterable(["the", "mill"]).open(SplitStart("0/1"))
        >>> [record.value for record in reader.poll(limit=10, now_ns=0)]
        ['the', 'mill']
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


class ReaderExtras(Protocol):
    """Members that a reader may have besides those of ``Reader``. Each of them is optional.

    Example:
        >>> from tailrace.connector import SplitStart
        >>> reader = tr.from_iterable(["the", "mill"]).open(SplitStart("0/1"))
        >>> reader.may_follow, hasattr(reader, "committed")
        (False, False)
    """

    def committed(self, offset: int, /) -> None:
        """Called when everything below this offset is durable: it will never be asked for again."""
        ...

    def wake_by(self, wake: Callable[[], None], /) -> None:
        """Called once, before the first poll, with a function that the reader calls, from any thread, when there is
        something to poll for. Meanwhile its ``ready_ns`` may be far away."""
        ...

    @property
    def may_follow(self) -> bool:
        """Whether records that were there before now may still come, although ``ready_ns`` is in the future: those that
        a thread of the reader's own is fetching. False without this member."""
        ...


class Source(Protocol[ReadT]):
    """A connector that roots come from.

    A source whose splits may disappear once they are read, such as files, sets ``splits_may_go = True``. Otherwise a
    run refuses to resume a checkpoint that knows a split which is not there any more.
    ``tailrace.testing.check_source`` checks the law of its readers.

    Example:
        >>> from tailrace.connector import Record, SplitStart
        >>> class Countdown:
        ...     replayable = True
        ...     def splits(self, tasks: int) -> list[str]:
        ...         return ["all"]
        ...     def open(self, start: SplitStart) -> "CountdownReader":
        ...         return CountdownReader(start.offset)
        >>> class CountdownReader:
        ...     ready_ns = 0
        ...     def __init__(self, offset: int) -> None:
        ...         self.next = offset
        ...     def poll(self, limit: int, now_ns: int) -> list[Record[int]]:
        ...         offsets = range(self.next, min(10, self.next + limit))
        ...         self.next = offsets.stop
        ...         return [Record(offset, 0, 10 - offset) for offset in offsets]
        ...     @property
        ...     def done(self) -> bool:
        ...         return self.next == 10
        ...     def close(self) -> None:
        ...         pass
        >>> tr.Topology("countdown").source("numbers", Countdown())
        Stream(numbers.main)
    """

    @property
    def replayable(self) -> bool:
        """False: positions are not stable, so its own crash gives at most once."""
        ...

    def splits(self, tasks: int) -> Sequence[str]:
        """Names of the splits, stable across restarts. Called on the driver when the run starts."""
        ...

    def open(self, start: SplitStart) -> Reader[ReadT]: ...


@dataclass(frozen=True)
class FeedContext:
    """The run that a feed is for, given to ``FedSource.feed``.

    Args:
        topology: the name of the topology.
        operator: the source's name in it.
        job_id: the same for all runs that resume one checkpoint.
        starts: by split, the offset at which this run begins to read.
        durable: tells, by split, the offset below which everything is durable, and will never be asked for again. Any
            thread may call it at any time.
        ended: to be called, from any thread, when the feed brings nothing more although it was not stopped: with
            None if that is its end, with the error that the run is to fail with otherwise.

    Example:
        >>> from tailrace.connector import FeedContext
        >>> context = FeedContext("words", "lines", "job", {"0": 0}, lambda: {"0": 0}, lambda error: None)
        >>> context.durable()
        {'0': 0}
    """

    topology: str
    operator: str
    job_id: str
    starts: Mapping[str, int]
    durable: Callable[[], Mapping[str, int]]
    ended: Callable[[Exception | None], None]


class Feed(Protocol):
    """The driver side of a source, which brings records while a run goes on.

    Law: once ``stop`` has returned, or ``ended`` was called with None, readers come to their end after what was brought
    until then. What was brought can be read again until it is durable, by this run and by later ones of the job.

    Example:
        >>> class Bell:
        ...     progress = None
        ...     def start(self) -> None:
        ...         print("nothing to bring yet")
        ...     def stop(self) -> None:
        ...         print("it is over")
        ...     def close(self) -> None:
        ...         pass
        >>> Bell().stop()
        it is over
    """

    def start(self) -> None:
        """Begin to bring records. Called once, before workers are started; what it raises ends the run."""
        ...

    def stop(self) -> None:
        """Bring nothing more. Returns when that is so. May be called at any time, and more than once."""
        ...

    def close(self) -> None:
        """The run is over: stop if that is not done, and release what ``feed`` acquired."""
        ...

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """Its work so far, as JSON values; None if there is nothing to tell yet."""
        ...


class FedSource(Source[ReadT], Protocol[ReadT]):
    """A source with a driver side, such as ``from_stream``. What is pickled for the workers is its reading side.

    The run drains such sources first: it stops the feed, waits until all that it has brought is durable, and then
    drains the other sources.

    Example:
        >>> from tailrace.connector import FedSource
        >>> hasattr(FedSource, "feed")
        True
    """

    def feed(self, context: FeedContext) -> Feed:
        """Check that the run can have its feed, and acquire what it needs. Raises TailraceError if it cannot."""
        ...


class Entry(NamedTuple):
    """The identity of one row at a committing sink.

    Args:
        split: the split of its root.
        offset: the offset of its root.
        lineage: which of the rows of that root it is.

    Example:
        >>> from tailrace.connector import Entry
        >>> Entry("0/1", 100, 0).offset
        100
    """

    split: str
    offset: int
    lineage: int


@dataclass(frozen=True)
class SinkContext:
    """The place of a sink's task, given to ``Sink.open``.

    Args:
        operator: the sink's name in the topology.
        task: the number of the task.
        tasks: how many tasks the sink has.
        epoch: which start of the worker this is. Each has a higher one than all before.
        job_id: the same for all runs that resume one checkpoint.
        call_driver: called as ``(operator, message)``, sends it to the sink's driver side and returns the reply;
            None if the sink has no driver side.
        first_epoch: the first epoch of this run: lower ones belong to earlier runs of the job. 0: this epoch.

    Example:
        >>> from tailrace.connector import SinkContext
        >>> SinkContext("out", 0, 1, 3, "job", lambda operator, message: None).first_epoch
        3
    """

    operator: str
    task: int
    tasks: int
    epoch: int
    job_id: str
    call_driver: Callable[[str, Any], Any]
    first_epoch: int = 0

    def __post_init__(self) -> None:
        if not self.first_epoch:
            object.__setattr__(self, "first_epoch", self.epoch)


class Writer(Protocol[WrittenT]):
    """Writes the rows that one sink task receives. Used by one thread.

    Example:
        >>> from tailrace.connector import SinkContext
        >>> context = SinkContext("out", 0, 1, 3, "job", lambda operator, message: None)
        >>> tr.to_call(print).open(context).write("the mill")
        the mill
    """

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
    """A connector that rows go to.

    ``tailrace.testing.check_sink`` checks the law of sinks that commit.

    Example:
        >>> from tailrace.connector import SinkContext
        >>> class Printed:
        ...     committing = False
        ...     def open(self, context: SinkContext) -> "Printer":
        ...         return Printer()
        >>> class Printer:
        ...     def write(self, value: object) -> None:
        ...         print(value)
        ...     def close(self) -> None:
        ...         pass
        >>> tr.Topology("words").source("words", tr.from_iterable(["the", "mill"])).sink("out", Printed())
    """

    @property
    def committing(self) -> bool:
        """True: ``open`` returns a CommittingWriter."""
        ...

    def open(self, context: SinkContext) -> Writer[WrittenT]: ...


class DriverSink(Sink[WrittenT], Protocol[WrittenT]):
    """A sink with a driver side, such as ``to_list``: its own object, which the workers' copies call.

    Law: runs that share one sink object keep apart. A message that matters to one job only names its ``job_id``.

    Example:
        >>> hasattr(tr.to_list(), "on_message")
        True
    """

    def on_message(self, task: int, epoch: int, message: Any) -> Any:
        """Called on the driver for every ``call_driver`` of a live epoch: one call at a time for each run, but runs
        that go on at the same time call from a thread each."""
        ...


@runtime_checkable
class FileSink(Sink[WrittenT], Protocol[WrittenT]):
    """A sink whose rows are files of a folder: what ``Run.table`` and ``tr.read_stream`` read.

    Its names are ``part-<operator>-<job>-….<format>``, which ``runtime.connectors.commits`` makes.

    Law: a file appears in the folder when its rows are committed, whole, and never changes.

    Example:
        >>> sink = tr.to_parquet("rows/", schema="number long")
        >>> sink.path.name, sink.format, sink.schema.names
        ('rows', 'parquet', ['number'])
    """

    @property
    def path(self) -> Path:
        """The folder."""
        ...

    @property
    def format(self) -> str:
        """``"parquet"``, or ``"jsonl"`` for lines of JSON. Names of files end with it."""
        ...

    @property
    def schema(self) -> Any | None:
        """The columns, as a pyarrow schema; None if they are those of the rows."""
        ...
