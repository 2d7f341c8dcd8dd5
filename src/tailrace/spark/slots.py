"""How many workers a Spark application has room for. Each worker occupies a slot for its lifetime."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tailrace.errors import OptionError

UNLIMITED = (1 << 31) - 1
"""The value that Spark gives for a number that has no limit."""

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def is_local(master: str) -> bool:
    """Whether all executors are on the driver's machine."""
    return bool(_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master))


def total_slots(master: str, conf: Mapping[str, str], processors: int) -> int | None:
    """The slots of the whole application; None if only the cluster manager knows, or if it may still grow."""
    executors = _executors(master, conf, processors)
    cpus = float(conf.get("spark.task.cpus", "1"))
    return None if executors is None else executors.number * int(executors.cores / cpus)


def most_slots(master: str, conf: Mapping[str, str], processors: int | None) -> int | None:
    """The slots that the application has, or may grow to; None if that is not known.

    ``processors``: of the driver's machine; None if that is another one, of which nothing is known.
    """
    local = _LOCAL.fullmatch(master)
    if local and local[1] == "*" and processors is None:
        return None
    most = conf.get("spark.dynamicAllocation.maxExecutors")
    if is_local(master) or conf.get("spark.dynamicAllocation.enabled", "false") != "true" or most is None:
        return total_slots(master, conf, processors or 1)
    cores = conf.get("spark.executor.cores", None if master.startswith("spark://") else "1")
    if cores is None or int(most) == UNLIMITED:
        return None
    return int(most) * int(int(cores) / float(conf.get("spark.task.cpus", "1")))


def executors_wanted(master: str, conf: Mapping[str, str]) -> int | None:
    """How many executors the application has requested; None if the cluster decides."""
    standalone = master.startswith("spark://") and "spark.executor.cores" not in conf
    executors = None if standalone else _executors(master, conf, 1)
    return None if executors is None else executors.number


class _Executors(NamedTuple):
    """Identical executors. A task runs within one, so leftover cores of several do not add up to a slot."""

    number: int
    cores: int


def _executors(master: str, conf: Mapping[str, str], processors: int) -> _Executors | None:
    cores = int(conf["spark.executor.cores"]) if "spark.executor.cores" in conf else None
    if local := _LOCAL.fullmatch(master):
        return _Executors(1, processors if local[1] == "*" else int(local[1] or 1))
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        # With ``spark.executor.cores``, the number of executors per node also depends on memory.
        return _Executors(int(cluster[1]), int(cluster[2])) if cores is None else None
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return None
    if master.startswith("spark://"):
        return _standalone(conf, cores)
    if "spark.executor.instances" in conf:  # YARN, Kubernetes
        return _Executors(int(conf["spark.executor.instances"]), cores or 1)
    return None


def _standalone(conf: Mapping[str, str], cores: int | None) -> _Executors | None:
    """Executors of a standalone cluster.

    By default an executor takes all cores of its node, whose number is unknown. Slots can then be counted only for
    tasks of one core, which leave no core over.
    """
    if "spark.cores.max" not in conf:
        return None
    most = int(conf["spark.cores.max"])
    if cores is not None:
        return _Executors(most // cores, cores)
    return _Executors(most, 1) if float(conf.get("spark.task.cpus", "1")) == 1 else None


class Held:
    """Counts the slots that runs of this process hold or have requested, by Spark application."""

    def __init__(self) -> None:
        self._slots: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, application: str, slots: int, total: int | None, master: str, wanted: str = "") -> None:
        """Reserve slots. Raises OptionError if too few are left: who wants them would wait in vain.

        ``wanted``: what wants them, if they are not for workers.
        """
        with self._lock:
            self._check(application, slots, total, master, wanted)
            self._slots[application] += slots

    def check(self, application: str, workers: int, total: int | None, master: str) -> None:
        """Raise OptionError if ``take`` would."""
        with self._lock:
            self._check(application, workers, total, master, "")

    def _check(self, application: str, slots: int, total: int | None, master: str, wanted: str) -> None:
        held = self._slots[application]
        if total is not None and slots > total - held:
            who = "runs" if wanted else "other runs"  # a query's own run has its workers already
            raise OptionError(too_few(master, total, f"{who} hold {held}", held, wanted or _workers(slots)))

    def give_back(self, application: str, slots: int) -> None:
        with self._lock:
            self._slots[application] -= slots

    def count(self, application: str) -> int:
        with self._lock:
            return self._slots[application]


HELD = Held()


def too_few(master: str, total: int, holders: str, held: int, wanted: str) -> str:
    free = max(0, total - held)
    others = f" ({holders} of {total})" if held else ""
    there = f"{master} has {free} free slot{'' if free == 1 else 's'}{others}"
    return f"too few slots: {there}, {wanted}; could the session have more cores, or the run fewer workers?"


def _workers(number: int) -> str:
    return f"{number} worker{'' if number == 1 else 's'} wanted"
