"""The type of what ``Topology.run`` returns: one type, whether workers are Spark tasks or plain processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self, Unpack

from tailrace.policy.techniques import Tail, Techniques


class Run(ABC):
    """The handle of a running topology. It reads like PySpark's ``StreamingQuery``.

    ``Topology.run`` makes one; nothing else does. All methods may be called from several threads. A run is also a
    context manager, which drains and stops it at the end of the block.

    In the examples below ``run`` is a run that goes on:

    Example:
        >>> import itertools
        >>> topology = tr.Topology("numbers")
        >>> numbers = topology.source("numbers", tr.at_rate(itertools.count, per_second=100))
        >>> numbers.sink("out", tr.to_call(id))
        >>> run = topology.run(workers=1)
        >>> run.awaitRunning(timeout=60)
        True
        >>> run.name
        'numbers'
    """

    name: str
    """The name of the topology."""

    id: str
    """The id of the job: the same for all runs that resume one checkpoint."""

    runId: str
    """The id of this run, new for each."""

    @property
    @abstractmethod
    def isActive(self) -> bool:
        """Whether the run goes on. False once it has ended and its last progress is there.

        Example:
            >>> run.isActive
            True
        """

    @property
    @abstractmethod
    def status(self) -> dict[str, Any]:
        """The state of the run now: ``message``, ``isDataAvailable`` and ``isTriggerActive``, as in PySpark.

        Example:
            >>> run.status["isTriggerActive"]
            True
        """

    @property
    @abstractmethod
    def lastProgress(self) -> dict[str, Any] | Any:
        """The newest progress report; a new one is made every second. ``None`` until the first, never after the end.

        Type checkers do not ask you to rule ``None`` out.

        Example:
            >>> run.processAllAvailable(timeout=60)
            >>> import time
            >>> while run.lastProgress is None:
            ...     time.sleep(0.01)
            >>> run.lastProgress["name"]
            'numbers'
        """

    @property
    @abstractmethod
    def recentProgress(self) -> list[dict[str, Any]]:
        """The last hundred progress reports, oldest first.

        Example:
            >>> run.recentProgress[-1]["name"]
            'numbers'
        """

    @abstractmethod
    def awaitRunning(self, timeout: float | None = None) -> bool:
        """Wait until all workers are up and sources have begun, or the run has ended.

        Args:
            timeout: seconds to wait at most. ``None``: without limit.

        Returns:
            False if the time was up first.

        Example:
            >>> run.awaitRunning(timeout=60)
            True
        """

    @abstractmethod
    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until the run ends: by itself, by ``stop``, or by an error, which is raised.

        Ctrl-C drains the run and stops it before ``KeyboardInterrupt`` is raised; a second Ctrl-C gives up. SIGTERM
        does the same, unless the program has a handler for it, and then raises ``SystemExit``.

        Args:
            timeout: seconds to wait at most. ``None``: without limit.

        Returns:
            False if the time was up first.

        Example:
            >>> run.awaitTermination(timeout=0.01)
            False
        """

    @abstractmethod
    def processAllAvailable(self, timeout: float | None = None) -> None:
        """Wait until all that sources can read now is read and durable, or the run has ended.

        A source that can always be read, such as an endless generator, never gets there: give a timeout.

        Args:
            timeout: seconds to wait at most, after which ``TimeoutError`` is raised. ``None``: without limit.

        Example:
            >>> run.processAllAvailable(timeout=60)
        """

    @abstractmethod
    def tail(self, **techniques: Unpack[Techniques]) -> Tail:
        """Switch techniques against the latency tail while the run goes on, without a restart.

        A task follows when its current call has ended. What no operator could follow is refused, as at the start.

        Args:
            techniques: those to switch, as for ``Tail``; ``None`` switches one off. The others stay as they are.

        Returns:
            The techniques that are on now. Without arguments nothing changes.

        Example:
            >>> run.tail(hedge=tr.adaptive_timeout()).hedge.name
            'adaptive_timeout'
            >>> run.tail(hedge=None)
            Tail(hedge=None, shared_queues=None, send=None)
        """

    @abstractmethod
    def workerPids(self) -> dict[int, int]:
        """The process ids of the workers that are up, by worker number.

        Example:
            >>> list(run.workerPids())
            [0]
        """

    @abstractmethod
    def table(self, spark: Any = None, sink: str | None = None, *, schema: Any = None) -> Any:
        """A DataFrame of the rows that a file sink of this run has committed by now.

        It never has a row that is not committed, or one that a crash will take back, and it stays as it is: call
        ``table`` again for newer rows. With a checkpoint it also has the rows of the runs before this one.

        Args:
            spark: the session to read in. The default is that of the run, or else the active one.
            sink: the name of the sink; it may be left out if only one writes files.
            schema: the columns, as a ``StructType`` or in Spark's words: ``"id long, name string"``. The default is
                the schema of the sink, or else what the files say.

        Example:
            >>> topology = tr.Topology("squares")
            >>> numbers = topology.source("numbers", tr.from_iterable(range(3)))
            >>> squares = numbers.map("square", lambda n: {"n": n, "square": n * n})
            >>> squares.sink("out", tr.to_parquet("squares/", schema="n long, square long"))
            >>> with topology.run(workers=1) as run:
            ...     run.awaitTermination()
            True
            >>> run.table(spark).orderBy("n").collect()
            [Row(n=0, square=0), Row(n=1, square=1), Row(n=2, square=4)]
        """

    @abstractmethod
    def stop(self, timeout: float | None = None) -> None:
        """Drain and stop: sources read no more, what was read becomes durable, sinks close, workers leave.

        Ctrl-C while it waits gives up what is left.

        Args:
            timeout: seconds after which the rest is given up; the next run with the same checkpoint goes on there, and
                ``exception()`` and a warning say so. ``None``: without limit.

        Example:
            >>> run.stop(timeout=60)
            >>> run.isActive
            False
        """

    @abstractmethod
    def exception(self) -> Exception | None:
        """The error that the run has failed with; ``None`` if it has not failed, or goes on.

        Example:
            >>> run.exception() is None
            True
        """

    @abstractmethod
    def __enter__(self) -> Self:
        """The run itself."""

    @abstractmethod
    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Drain and stop. Raises what the run has failed with, unless that is known or the block has failed itself."""
