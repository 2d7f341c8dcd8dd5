"""Which host the job of a worker prefers, by what Spark's status store says. The store is a stand-in here."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tailrace.spark import spreading
from tailrace.spark.probes import Executor, Task
from tailrace.spark.spreading import Spreading

LONG_AGO_MS = 1


class Store:
    """Two hosts with two slots each."""

    def __init__(self) -> None:
        self.hosts = {name: Executor(name, name, 2, 0, LONG_AGO_MS) for name in ("a", "b")}
        self.landed: dict[str, str] = {}  # by job group

    def executors(self) -> dict[str, Executor]:
        return self.hosts

    def tasks(self, group: str) -> list[Task]:
        return [Task(1, "1", "", self.landed[group])] if group in self.landed else []


class Context:
    def __init__(self, master: str = "spark://there:7077", **conf: str) -> None:
        self.master = master
        self._conf = [(name.replace("_", "."), value) for name, value in conf.items()]

    def getConf(self) -> Any:
        return self

    def getAll(self) -> list[tuple[str, str]]:
        return self._conf


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(spreading, "StatusStore", lambda context: store)
    return store


def group(worker: int, epoch: int) -> str:
    return f"{worker} {epoch}"


def test_workers_take_turns_at_hosts_until_there_is_no_slot_left(store: Store) -> None:
    chooser = Spreading(Context(), group)
    assert [chooser.choose(worker, worker) for worker in range(5)] == ["a", "b", "a", "b", None]


def test_a_worker_that_landed_elsewhere_counts_there(store: Store) -> None:
    chooser = Spreading(Context(), group)
    assert chooser.choose(0, 1) == "a"
    store.landed["0 1"] = "b"
    assert chooser.choose(1, 2) == "a"


def test_a_successor_goes_where_its_predecessor_is_missing(store: Store) -> None:
    chooser = Spreading(Context(), group)
    for worker in range(3):
        store.landed[group(worker, worker)] = chooser.choose(worker, worker) or ""
    assert chooser.choose(1, 7) == "b"


def test_a_host_of_which_nothing_was_heard_is_avoided_while_there_is_another(store: Store) -> None:
    """Spark may not know yet that it is cut off."""
    chooser = Spreading(Context(), group)
    assert [chooser.choose(worker, worker) for worker in range(3)] == ["a", "b", "a"]
    chooser.avoid(1)
    assert chooser.choose(1, 7) == "b", "there is no room anywhere else"
    chooser.avoid(0)
    assert chooser.choose(0, 8) == "a"
    store.hosts["c"] = Executor("c", "c", 2, 0, LONG_AGO_MS)
    assert chooser.choose(0, 9) == "c" == chooser.choose(1, 10)


def test_slots_that_others_have_are_not_counted(store: Store) -> None:
    store.hosts["a"] = Executor("a", "a", 2, 2, LONG_AGO_MS)
    chooser = Spreading(Context(), group)
    assert [chooser.choose(worker, worker) for worker in range(3)] == ["b", "b", None]


def test_own_workers_leave_the_slots_of_a_host_as_they_are(store: Store) -> None:
    chooser = Spreading(Context(), group)
    for worker in range(2):
        host = chooser.choose(worker, worker) or ""
        store.landed[group(worker, worker)] = host
        store.hosts[host] = Executor(host, host, 2, 1, LONG_AGO_MS)
    assert chooser.choose(2, 2) == "a"


def test_executors_that_are_about_to_come_are_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "SETTLED_MS", 300)
    late = store.hosts.pop("a")
    store.hosts["b"] = Executor("b", "b", 2, 0, int(time.time() * 1000))
    monkeypatch.setattr(spreading.time, "sleep", lambda seconds: store.hosts.setdefault("a", late))
    assert Spreading(Context(), group).choose(0, 1) == "a"


def test_executors_that_were_asked_for_are_waited_for_longer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    late = store.hosts.pop("a")
    store.hosts["b"] = Executor("b", "b", 2, 0, int(time.time() * 1000) - 2 * spreading.SETTLED_MS)
    monkeypatch.setattr(spreading.time, "sleep", lambda seconds: store.hosts.setdefault("a", late))
    asked = {"spark_executor_cores": "2", "spark_cores_max": "4"}
    assert Spreading(Context(**asked), group).choose(0, 1) == "a"


@pytest.mark.parametrize("conf", [{"spark_dynamicAllocation_enabled": "true"}, {}])
def test_a_session_without_executors_has_no_preference(
    conf: dict[str, str], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreading, "WAIT_S", 0.1)
    store.hosts.clear()
    assert Spreading(Context(**conf), group).choose(0, 1) is None


def test_one_machine_has_no_preference(store: Store) -> None:
    assert Spreading(Context("local-cluster[2,1,1024]"), group).choose(0, 1) is None


def test_a_store_that_does_not_answer_costs_the_preference_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(context: Any) -> Any:
        raise RuntimeError("stopped")

    monkeypatch.setattr(spreading, "StatusStore", fail)
    assert Spreading(Context(), group).choose(0, 1) is None
