"""Spreads the workers of a run over the hosts of its executors: each worker's job prefers a host.

A preference is no more than that. Spark puts the task elsewhere if the host has no free slot within
``spark.locality.wait``. So where the others have landed is looked up before the next one is placed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from tailrace.policy.placement.spread import next_host
from tailrace.spark.probes import Executor, StatusStore
from tailrace.spark.slots import executors_wanted, is_local

SETTLED_MS = 1_000
"""A session whose last executor registered less than this ago may get more of them: they start at the same time."""

MISSING_MS = 10_000
"""How long to wait for another executor while there are fewer than the session has asked for."""

WAIT_S = 30.0
"""For executors, at most. A session may have none, and a run that waits for its workers says so."""

AVOID_S = 120.0
"""How long no worker prefers a host of which nothing was heard. Spark goes on offering its slots for 96 s."""

POLL_S = 0.05


class Spreading:
    """Chooses hosts for the workers of one run. For any thread. ``group`` names the job group of (worker, epoch)."""

    def __init__(self, context: Any, group: Callable[[int, int], str]) -> None:
        self._context, self._group = context, group
        self._one_machine = is_local(str(context.master))
        self._epochs: dict[int, int] = {}  # by worker
        self._homes: dict[int, str] = {}  # by worker: where it is, or was meant to be
        self._silent: deque[int] = deque()  # workers of which nothing was heard, not looked at yet
        self._avoid_to_s: dict[str, float] = {}  # by host
        self._lock = threading.Lock()

    def avoid(self, worker: int) -> None:
        """Nothing was heard of this worker: its host may be cut off, and hold up whoever is sent there."""
        self._silent.append(worker)  # without the lock: who chooses may hold it for long

    def choose(self, worker: int, epoch: int) -> str | None:
        """The host that this worker should go to; None if it does not matter, or cannot be known."""
        if self._one_machine:
            return None
        try:
            with self._lock:
                return self._choose(worker, epoch)
        except Exception:  # Spark's status store is not a public interface, and its session may have been stopped
            return None

    def _choose(self, worker: int, epoch: int) -> str | None:
        store = StatusStore(self._context)
        executors = self._executors(store)
        landed = self._look(store)
        while self._silent:
            self._avoid_to_s[self._homes.get(self._silent.popleft(), "")] = time.monotonic() + AVOID_S
        self._homes.pop(worker, None)
        landed.pop(worker, None)
        busy, slots = Counter[str](), Counter[str]()
        for executor in executors:
            busy[executor.host] += executor.busy
            slots[executor.host] += executor.slots
        own = Counter(landed.values())
        room = {host: slots[host] - max(0, busy[host] - own[host]) for host in slots}
        reached = {host: slots for host, slots in room.items() if self._avoid_to_s.get(host, 0.0) < time.monotonic()}
        host = next_host(reached, self._homes.values()) or next_host(room, self._homes.values())
        self._epochs[worker] = epoch
        if host is not None:
            self._homes[worker] = host
        return host

    def _look(self, store: StatusStore) -> dict[int, str]:
        """Note where workers have landed. Returns those of which it is known."""
        landed = {}
        for worker in self._homes:
            tasks = store.tasks(self._group(worker, self._epochs[worker]))
            if tasks:
                landed[worker] = tasks[-1].host
        self._homes |= landed
        return landed

    def _executors(self, store: StatusStore) -> list[Executor]:
        """The executors, once all that were asked for are there, or no more have come for a while."""
        conf = dict(self._context.getConf().getAll())
        wanted = executors_wanted(str(self._context.master), conf)
        come_with_tasks = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        deadline_s = time.monotonic() + WAIT_S
        while True:
            executors = list(store.executors().values())
            if wanted is not None and len(executors) >= wanted:
                return executors
            least_ms = SETTLED_MS if wanted is None else MISSING_MS
            newest_ms = max((executor.since_ms for executor in executors), default=None)
            settled = newest_ms is not None and time.time() * 1000 - newest_ms > least_ms
            if settled or come_with_tasks or time.monotonic() > deadline_s:
                return executors
            time.sleep(POLL_S)


def one_row(spark: SparkSession, host: str | None) -> Any:
    """A DataFrame of one row whose only task prefers a host."""
    if host is None:
        return spark.range(0, 1, 1, 1)
    from pyspark.sql.classic.dataframe import DataFrame

    context: Any = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    values = gateway.new_array(jvm.java.lang.Object, 1)
    values[0] = 0
    row = jvm.org.apache.spark.sql.RowFactory.create(values)
    places = jvm.PythonUtils.toSeq([host])
    rows = jvm.PythonUtils.toSeq([jvm.scala.Tuple2(row, places)])
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("id int")
    located = context._jsc.sc().makeRDD(rows, jvm.scala.reflect.ClassTag.Any())
    session: Any = spark
    return DataFrame(session._jsparkSession.createDataFrame(located.toJavaRDD(), schema), spark)
