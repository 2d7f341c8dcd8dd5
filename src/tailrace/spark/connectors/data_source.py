"""Any PySpark Python data source with a stream reader is a source.

Its offsets are dicts, ours are integers: the log numbers the batches, and a root's offset is
``(batch << 32) + row``. With the log the same number leads to the same row after any restart, provided that the data
source gives the rows between two offsets in the same order when it is asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import Reader, Record, SplitStart
from tailrace.errors import NotRepeatable, OptionError, TailraceError, shorten
from tailrace.runtime.connectors.fingerprint import describe, matches
from tailrace.runtime.connectors.read_ahead import close_iterator
from tailrace.spark.connectors.batch_log import Batch, BatchLog, Offset
from tailrace.spark.connectors.data_options import as_struct, check_class, check_log, check_options, make, own_schema
from tailrace.spark.connectors.data_stream import Rows, as_dicts, open_stream

SPLIT = "stream"
_ROW_BITS = 32  # 4 billion rows a batch; 31 bits are left for batches, which is 6 years at ten a second
_END = object()


@dataclass(frozen=True)
class StreamSource:
    """See ``from_data_source``."""

    data_source: type[DataSource]
    options: Mapping[str, str]
    schema: StructType
    log: Path
    poll_ns: int
    available_now: bool
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return [SPLIT]

    def open(self, start: SplitStart) -> Reader[dict[str, Any]]:
        return StreamReader(self, start)


class StreamReader:
    """Reads batch after batch: those of the log first, then new ones, each of which is logged before it is read."""

    def __init__(self, source: StreamSource, start: SplitStart) -> None:
        self._source = source
        self._log = BatchLog(source.log, source.data_source.name())
        self._known = max(self._log.numbers(), default=-1)  # the newest batch that a predecessor has planned
        self._stream = open_stream(make(source.data_source, source.options), source.schema, source.available_now)
        self._starts: dict[int, Offset] = {}  # start offsets of batches that are not wholly below the prefix
        self._committed = 0  # batches below this number are committed
        self._rows: Iterator[dict[str, Any]] = iter(())
        self._next = 0  # our offset of the next row
        self._ready_ns = 0
        self._done = False
        try:
            self._resume(start)
        except BaseException:
            self._stream.stop()
            raise

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        rows = list(islice(self._rows, limit))
        if not rows and limit > 0 and self._advance(now_ns):
            rows = list(islice(self._rows, limit))
        first = self._next
        self._next += len(rows)
        if self._next >> _ROW_BITS != self._number and rows:
            raise TailraceError(
                f"batch has too many rows: class={self._source.data_source.__name__} batch={self._number} "
                f"limit={1 << _ROW_BITS}, can the data source limit what latestOffset returns?"
            )
        return [Record(offset, 0, row) for offset, row in enumerate(rows, first)]

    @property
    def ready_ns(self) -> int:
        return self._ready_ns

    @property
    def done(self) -> bool:
        return self._done

    def committed(self, offset: int) -> None:
        """All offsets below this one are durable: commit them to the data source, and delete their batches."""
        number = offset >> _ROW_BITS
        if number <= self._committed or number not in self._starts:
            return
        self._stream.commit(self._starts[number])
        self._log.prune(number - 1)  # keeps one more: the end of a batch is the start of the next
        self._committed = number
        self._starts = {batch: start for batch, start in self._starts.items() if batch >= number}

    def close(self) -> None:
        close_iterator(self._rows)
        self._stream.stop()

    def _resume(self, start: SplitStart) -> None:
        self._log.sweep()
        self._number = start.offset >> _ROW_BITS
        batch = self._log.read(self._number)
        if batch is not None:
            self._begin(batch, None)
            self._skip(start)
            self.committed(start.offset)
            return
        if start.offset:
            raise NotRepeatable(
                f"log does not know the batch: log={self._source.log} batch={self._number} offset={start.offset}, "
                "is it the folder that the job began with?"
            )
        if self._known >= 0:
            raise NotRepeatable(
                f"log begins after the job: log={self._source.log} first={self._log.numbers()[0]}, "
                "does it belong to an earlier job, whose checkpoint is gone?"
            )
        self._number = -1
        self._at = self._stream.initial()

    def _skip(self, start: SplitStart) -> None:
        """Skip the rows that were read before. Raises NotRepeatable if the last of them has changed."""
        count = start.offset - (self._number << _ROW_BITS)
        self._next = start.offset
        if not count:
            return
        deque(islice(self._rows, count - 1), maxlen=0)
        last = next(self._rows, _END)
        if last is not _END and (start.last is None or matches(start.last, last)):
            return
        before = "a row" if start.last is None else shorten(describe(start.last))
        raise NotRepeatable(
            f"data source gave something else when read again: class={self._source.data_source.__name__} "
            f"batch={self._number} row={count - 1} before={before} now={'the end' if last is _END else shorten(last)}, "
            "does it give the rows between two offsets in the same order?"
        )

    def _advance(self, now_ns: int) -> bool:
        """Begin the next batch. False if there is none yet."""
        number = self._number + 1
        batch = self._log.read(number) if number <= self._known else None
        rows: Rows | None = None
        if batch is None:
            end, rows = self._stream.ahead(self._at)
            if end == self._at:
                self._ready_ns = now_ns + self._source.poll_ns
                self._done = self._source.available_now
                return False
            wanted = Batch(number, self._at, end)
            batch = self._log.plan(wanted)
            if batch != wanted:
                rows = None  # the logged batch ends elsewhere
        self._begin(batch, rows)
        self._ready_ns = 0
        return True

    def _begin(self, batch: Batch, rows: Rows | None) -> None:
        if rows is None:
            rows = self._stream.between(batch.start, batch.end)
        self._rows = as_dicts(rows, self._source.schema, self._source.data_source.__name__)
        self._number = batch.number
        self._next = batch.number << _ROW_BITS
        self._starts[batch.number] = batch.start
        self._at = batch.end


def from_data_source(
    data_source: type[DataSource],
    options: Mapping[str, str] | None = None,
    *,
    log: str | Path | None = None,
    schema: str | StructType | None = None,
    poll_ms: float = 10.0,
    available_now: bool = False,
) -> StreamSource:
    """Read the stream of a PySpark Python data source. Rows come as dicts by the names of its schema.

    One task reads, however many there are. The data source is asked for more when all rows are read.

    Args:
        data_source: a subclass of ``pyspark.sql.datasource.DataSource`` with a stream reader.
        options: its options, as for ``spark.readStream.options``.
        log: a folder that all workers reach, one for each job and source. It holds which offsets were read as which
            batch, so that the same rows are read after a crash.
        schema: replaces what the data source's ``schema()`` says.
        poll_ms: milliseconds between two questions while there are no rows.
        available_now: whether the source ends when nothing more is there. Otherwise it never ends.

    Example:
        >>> from typing import Any
        >>> from pyspark.sql.datasource import DataSource
        >>> class Numbers(DataSource):
        ...     @classmethod
        ...     def name(cls) -> str:
        ...         return "numbers"
        ...     def schema(self) -> str:
        ...         return "number long"
        ...     def simpleStreamReader(self, schema: Any) -> Any:
        ...         raise NotImplementedError("reads numbers from somewhere")
        >>> source = tr.from_data_source(Numbers, log="log/", available_now=True)
        >>> tr.Topology("numbers").source("numbers", source)
        Stream(numbers.main)
    """
    source = check_class(data_source, "from_data_source")
    checked = check_options(source, options)
    if source.streamReader is DataSource.streamReader and source.simpleStreamReader is DataSource.simpleStreamReader:
        raise OptionError(
            f"data source has no stream reader: class={source.__name__}, "
            "did you forget to define streamReader or simpleStreamReader?"
        )
    folder = check_log(source, log, "from_data_source")
    if not (isfinite(poll_ms) and poll_ms > 0):
        raise OptionError(f"option must be positive: poll_ms={poll_ms}, did you mean to leave it out?")
    struct = as_struct(own_schema(source, checked) if schema is None else schema, source)
    return StreamSource(source, checked, struct, folder, int(poll_ms * MILLISECOND_NS), available_now)
