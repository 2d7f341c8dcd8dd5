"""How many workers a Spark application has room for: each one holds a slot as long as it lives."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping

from tailrace.errors import OptionError

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def is_local(master: str) -> bool:
    """Whether all executors are on the driver's machine."""
    return bool(_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master))


def total_slots(master: str, conf: Mapping[str, str], processors: int) -> int | None:
    """Of the whole application; None where only its cluster manager knows, or where it may yet grow."""
    cores = _cores(master, conf, processors)
    return None if cores is None else int(cores / float(conf.get("spark.task.cpus", "1")))


def _cores(master: str, conf: Mapping[str, str], processors: int) -> int | None:
    if local := _LOCAL.fullmatch(master):
        return processors if local[1] == "*" else int(local[1] or 1)
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        return int(cluster[1]) * int(cluster[2])
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return None
    if master.startswith("spark://"):
        return int(conf["spark.cores.max"]) if "spark.cores.max" in conf else None
    if "spark.executor.instances" in conf:  # YARN, Kubernetes
        return int(conf["spark.executor.instances"]) * int(conf.get("spark.executor.cores", "1"))
    return None


class Held:
    """Slots that runs of this process hold or have asked for, by Spark application."""

    def __init__(self) -> None:
        self._slots: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, application: str, workers: int, total: int | None, master: str) -> None:
        """Raises OptionError if there are too few left: the workers would wait for slots in vain."""
        with self._lock:
            held = self._slots[application]
            if total is not None and workers > total - held:
                raise OptionError(too_few(master, total, held, workers))
            self._slots[application] += workers

    def give_back(self, application: str, workers: int) -> None:
        with self._lock:
            self._slots[application] -= workers

    def count(self, application: str) -> int:
        with self._lock:
            return self._slots[application]


HELD = Held()


def too_few(master: str, total: int, held: int, wanted: int) -> str:
    free = max(0, total - held)
    others = f" (other runs hold {held} of {total})" if held else ""
    there = f"{master} has {free} free slot{'' if free == 1 else 's'}{others}"
    needed = f"{wanted} worker{'' if wanted == 1 else 's'} wanted"
    return f"too few slots: {there}, {needed}; could the session have more cores, or the run fewer workers?"
