"""The named parameters of operators and runs, as types that editors complete and type checkers check.

Each parameter is described once, below its name; ``docs/reference/`` is made from these descriptions. A name that is
not here is refused when it is used, with the name that was probably meant.
"""

from __future__ import annotations

from os import PathLike
from typing import Literal, TypedDict

from tailrace.calls import Calls
from tailrace.policy.groupings.api import Grouping
from tailrace.policy.techniques import Tail

TaskKind = Literal["auto", "cpu", "blocking"]
"""How a task shares its worker with the others."""

ErrorAction = Literal["fail", "skip", "dead_letter"]
"""The fate of a tuple whose function raised."""


class SourceOptions(TypedDict, total=False):
    """Parameters of ``Topology.source``.

    Example:
        >>> parallel: tr.SourceOptions = {"tasks": 2}
        >>> topology = tr.Topology("numbers")
        >>> topology.source("numbers", tr.from_iterable(range(10)), **parallel)
        Stream(numbers.main)
    """

    tasks: int
    """How many tasks read the source. The splits of the source are divided among them. The default is 1."""

    kind: TaskKind
    """``"blocking"`` gives each task a thread from the start: for readers that wait in ``poll``. ``"auto"``, the
    default, gives a task a thread once its calls prove long. ``"cpu"`` never does."""


class SinkOptions(TypedDict, total=False):
    """Parameters of ``Stream.sink``.

    Example:
        >>> patient: tr.SinkOptions = {"on_error": "skip"}
        >>> topology = tr.Topology("numbers")
        >>> numbers = topology.source("numbers", tr.from_iterable(range(10)))
        >>> numbers.sink("out", tr.to_call(print), **patient)
    """

    tasks: int | None
    """How many tasks the operator runs as. The default is 1; with ``kind="cpu"`` it is one in each worker, and with
    ``grouping=local()`` as many as the operator upstream has."""

    grouping: Grouping | None
    """Which task each tuple goes to. The default is ``shuffle()``. Into a sink that commits, a grouping by load is
    refused."""

    kind: TaskKind
    """How a task shares its worker's thread. ``"auto"``, the default: it gets a thread of its own once its calls prove
    long. ``"cpu"``: it never does. ``"blocking"``: it has one from the start, for calls that wait."""

    on_error: ErrorAction
    """The fate of a tuple whose function raises. ``"fail"``, the default, ends the run with the error. ``"skip"``
    drops the tuple and counts it. ``"dead_letter"`` sends it, with the error, to ``stream.dead_letters``."""


class OperatorOptions(SinkOptions, total=False):
    """Parameters of ``Stream.map``, ``flat_map``, ``filter`` and ``map_batch``.

    Example:
        >>> waits: tr.OperatorOptions = {"tasks": 4, "kind": "blocking"}
        >>> topology = tr.Topology("numbers")
        >>> numbers = topology.source("numbers", tr.from_iterable(range(10)))
        >>> numbers.map("double", lambda number: 2 * number, **waits)
        Stream(double.main)
    """

    stateful: bool
    """``True`` says that tasks keep something between tuples. The state of a task is lost when its worker dies. Sources
    that lead to the operator are not hedged, and a run that resumes a checkpoint needs ``state="restart"``. The default
    is ``False``."""

    mergeable: bool
    """``True`` says that the state of one key may be spread over several tasks, because something downstream merges
    it. A grouping by load may then lead to a stateful operator. The default is ``False``."""

    idempotent: bool
    """``False`` says that the function should not see a tuple twice: sources that lead to the operator are not hedged.
    After a crash it may see tuples again all the same. The default is ``True``."""

    concurrency: int | None
    """How many calls of an ``async def`` function one task has under way at a time. The default is 64. Other functions
    take no ``concurrency``, except with ``calls``."""

    calls: Calls | None
    """How the function is called: time limit, retries, hedges, limit, journal. See ``tr.Calls``. Plain functions then
    run in threads, as many at once as its ``concurrency``. ``map_batch`` takes no ``calls``."""


class RunOptions(TypedDict, total=False):
    """Options of ``Topology.run``.

    Example:
        >>> careful: tr.RunOptions = {"workers": 4, "max_pending": 1000}
        >>> sorted(careful)
        ['max_pending', 'workers']
    """

    workers: int | None
    """How many worker processes run the tasks. Each takes one slot of Spark."""

    checkpoint: str | PathLike[str] | None
    """A folder, not a URI, that holds how far sources got. The next run with the same folder goes on from there."""

    state: Literal["restart"] | None
    """``"restart"`` lets stateful operators begin with empty state where a checkpoint is resumed, which holds none.
    Without it such a run is refused."""

    record: str | PathLike[str] | None
    """A folder for what every tuple did, from which ``tailrace sim --trace`` plays the run again."""

    tail: Tail
    """The techniques against the latency tail that are on from the start. ``run.tail(…)`` switches them later."""

    max_pending: int
    """How many roots a source task may have under way. It bounds memory, and what is read again after a crash."""

    heartbeat_timeout_s: float
    """Seconds of silence after which a worker counts as dead. A function that holds the interpreter longer than this
    counts as dead, too. The least is 0.5."""

    start_timeout_s: float
    """Seconds that all workers may take to come up."""

    recovery_timeout_s: float
    """Seconds after which a root that is not complete is emitted again although no loss was reported. It must be longer
    than any call takes."""

    stop_timeout_s: float
    """Seconds that workers may take to close their tasks at the end of the run."""

    max_deaths: int
    """How many times in a row a worker may die without progress before the run fails."""

    feedback_share: float
    """The share of a core that a worker may spend on the reports of load-aware groupings."""

    outgoing_tuples: int
    """How many tuples of a task may wait to leave their worker when a send scheduler is on."""

    link_mbps: float | None
    """Megabits a second that may leave each worker, or each node. ``None``: no limit."""

    link_scope: Literal["worker", "node"]
    """Whether ``link_mbps`` is for each worker, or for all workers of a node together."""

    ring: bool
    """``False`` has workers of one node talk over TCP instead of shared memory."""

    encrypt: bool | None
    """``True`` encrypts every connection of the run with TLS 1.3, ``None`` only where the Spark session is set to
    encrypt its network traffic. It takes ``pip install 'tailrace[encrypt]'`` on the driver."""

    plaintext: bool
    """``True`` sends everything in clear, although the Spark session is set to encrypt its network traffic."""

    port: int | str | None
    """The port that processes of the run listen on, or a range of ports, such as ``"20000-20100"``, of which each takes
    the first that is free. ``None``: any."""


class ApplyOptions(RunOptions, total=False):
    """Options of ``Topology.apply``: those of ``Topology.run``, and what concerns the rows.

    Example:
        >>> shared: tr.ApplyOptions = {"folder": "/mnt/shared", "workers": 8}
        >>> sorted(shared)
        ['folder', 'workers']
    """

    folder: str | PathLike[str] | None
    """A folder that the driver and all executors reach under this path, in which rows lie while the topology runs, and
    the result until the driver ends. The default is a temporary one of this machine. With ``checkpoint`` the rows are
    there instead."""

    splits: int | None
    """How many files the rows of the DataFrame are written to before the topology reads them. The default is the number
    of its partitions."""

    watch: bool
    """``True`` shows the progress until the end, as ``tr.watch`` does. The default is ``False``."""
