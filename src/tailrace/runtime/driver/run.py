"""The run handle on the driver: starts the coordinator, collects its progress, and ends it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from tailrace.core.hedging.controller import check_hedging
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.plan.queue_sharing import check_sharing
from tailrace.core.protocol.coordinator import Phase
from tailrace.errors import OptionError, TailraceError, headline, shorten
from tailrace.policy.numbers import is_number
from tailrace.policy.techniques import NODE, Tail, Techniques
from tailrace.runtime.connectors.commits.files import part_pattern
from tailrace.runtime.driver import at_exit
from tailrace.runtime.driver.checkpoint import Checkpoint
from tailrace.runtime.driver.file_sinks import TableReader, check_visible, choose_file_sink
from tailrace.runtime.driver.host import Host
from tailrace.runtime.driver.run_feeds import RunFeeds
from tailrace.runtime.driver.run_journals import RunJournals
from tailrace.runtime.driver.server import CoordinatorServer
from tailrace.runtime.driver.unfinished_work import describe_unfinished
from tailrace.runtime.encryption.certificate import make_certificate
from tailrace.runtime.listening import Place, listen
from tailrace.runtime.options import RunSettings
from tailrace.runtime.worker.recorder import check_folder
from tailrace.signals import terminable, wait_for
from tailrace.topology import Role, Run, Topology

logger = logging.getLogger("tailrace")

PROGRESS_S = 1.0
POLL_S = 0.01
KEPT = 100
"""How many progress reports ``recentProgress`` keeps, as in PySpark."""


class HostedRun(Run):
    """A run whose coordinator is in this process. A ``Host`` provides its workers: on Spark or on this machine."""

    def __init__(
        self,
        topology: Topology,
        options: RunSettings,
        host: Host,
        place: Place,
        read_table: TableReader | None = None,
    ) -> None:
        self.name = topology.name
        self.runId = str(uuid.uuid4())
        self._options = options
        self._read_table = read_table
        plan = _checked_plan(topology, options)
        if options.record is not None:  # workers may have another working directory
            options = replace(options, record=Path(options.record).absolute())
        checkpoint = Checkpoint(options.checkpoint, plan)
        self.id = checkpoint.job_id
        _warn_of_sources_without_replay(plan)
        _warn_of_unshared_queues(plan, options.tail)
        _warn_of_unhedged_sources(plan, options.tail)
        self._link_scope = options.link_scope
        _warn_of_useless_send_order(plan, options.tail, self._link_scope)
        with ExitStack() as undo:
            undo.callback(checkpoint.close)
            self._journals = RunJournals(plan)
            undo.callback(self._journals.release, finished=False)
            self._feeds = RunFeeds(plan, checkpoint.positions(), self.id)
            undo.callback(self._feeds.close)
            self._feeds.start()
            self._server = CoordinatorServer(self._journals.plan, options, host, checkpoint, self.runId, place)
            undo.pop_all()  # the run releases all that when it ends
        self._recent: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._ended = threading.Event()  # the run is over and its last progress has been appended
        self._switching = threading.Lock()
        self._error_seen = False
        self._server.start()
        self._feeds.join(self._server)
        at_exit.remember(self)
        threading.Thread(target=self._report, name="tailrace-progress", daemon=True).start()

    @property
    def coordinator(self) -> CoordinatorServer:
        """The driver's state as of now, for tests and tools: ``lastProgress`` is up to a second old."""
        return self._server

    # -- the interface of PySpark's StreamingQuery

    @property
    def isActive(self) -> bool:
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        last = self.lastProgress
        return {
            "message": "waiting for workers" if last is None and self.isActive else self._state(),
            "isDataAvailable": bool(last and last["pending"]),
            "isTriggerActive": self._server.phase is Phase.RUNNING,
        }

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self._recent[-1] if self._recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return list(self._recent)

    def awaitTermination(self, timeout: float | None = None) -> bool:
        timeout = _checked(timeout)
        with terminable():
            try:
                ended = wait_for(self._ended, timeout)
            except KeyboardInterrupt:
                self._drain(None, f"draining: run={self.name}: what was read still arrives; Ctrl-C again gives up")
                raise
        if ended:
            self._raise_error()
        return ended

    def stop(self, timeout: float | None = None) -> None:
        self._drain(_checked(timeout))

    def _drain(self, timeout: float | None, warning: str | None = None) -> None:
        """Drain the run. A second Ctrl-C gives up, even one that comes while the warning about the first is logged."""
        try:
            if warning is not None:
                logger.warning("%s", warning)
            deadline = None if timeout is None else time.monotonic() + timeout
            drained = self._feeds.drain(self._ended, timeout)
            begun = self._server.phase is not Phase.STARTING
            if drained:
                self._server.drain()
                drained = wait_for(self._ended, None if deadline is None else max(0.0, deadline - time.monotonic()))
        except KeyboardInterrupt:
            self._give_up("interrupted=True")
            raise
        if not drained:
            self._give_up(f"timeout={timeout}")
        elif not begun and self._server.error is None:
            logger.warning(
                "a run was stopped before its sources began, and has read nothing: run=%s: "
                "did you mean run.awaitTermination(), or awaitRunning() first?",
                self.name,
            )

    def _give_up(self, why: str) -> None:
        error = TailraceError(f"stopped before all was drained: {why}")
        self._server.fail(error)
        wait_for(self._ended, None)
        if self._server.error is error:  # else it ended by itself in the meantime
            self._mark_error_seen()
            last = self.lastProgress
            if last is None or last["pending"]:
                logger.warning("%s", self._unfinished(why))

    def _unfinished(self, why: str) -> str:
        fate = "are lost, as there is no checkpoint" if self._options.checkpoint is None else "wait for the next run"
        left = describe_unfinished(self._server.plan, self.lastProgress)
        return (
            f"a run was given up before all was drained: run={self.name} {why} {left}: "
            f"the pending roots {fate}; could it have had more time?"
        )

    def exception(self) -> Exception | None:
        return self._mark_error_seen() if not self.isActive else None

    @property
    def _unseen_error(self) -> Exception | None:
        return None if self._error_seen or self.isActive else self._server.error

    def _mark_error_seen(self) -> Exception | None:
        self._error_seen = True
        at_exit.forget(self)
        return self._server.error

    def _raise_error(self) -> None:
        error = self._mark_error_seen()
        if error is not None:
            raise error

    def processAllAvailable(self, timeout: float | None = None) -> None:
        timeout = _checked(timeout)
        if not wait_for(self._server.running, timeout):
            raise TimeoutError(f"not all workers are up: run={self.name} timeout={timeout}")
        deadline = None if timeout is None else time.monotonic() + timeout
        passed = self._server.raise_barrier()
        while not self._ended.wait(POLL_S) and not passed():
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"still busy: run={self.name} timeout={timeout}; does a source never run dry?")
        if self._ended.is_set():
            self._raise_error()

    # -- beyond StreamingQuery

    def tail(self, **techniques: Unpack[Techniques]) -> Tail:
        with self._switching:
            changed = self._server.tail.changed(techniques)
            self._options.check(changed)
            check_sharing(self._server.plan, changed.shared_queues)
            if changed != self._server.tail:
                if not self.isActive:
                    raise TailraceError(f"a run that has ended has no techniques to switch: run={self.name}")
                if changed.shared_queues != self._server.tail.shared_queues:
                    _warn_of_unshared_queues(self._server.plan, changed)
                _warn_of_unhedged_sources(self._server.plan, changed)
                _warn_of_useless_send_order(self._server.plan, changed, self._link_scope)
                self._server.switch(changed)
            return changed

    def awaitRunning(self, timeout: float | None = None) -> bool:
        return wait_for(self._server.running, _checked(timeout))

    def workerPids(self) -> dict[int, int]:
        return self._server.pids()

    def table(self, spark: Any = None, sink: str | None = None, *, schema: Any = None) -> Any:
        chosen = choose_file_sink(self._server.plan, sink)
        check_visible(chosen, self.id, self.lastProgress)
        assert self._read_table is not None, "a run of Topology.run can read tables"
        body = chosen.operator.body
        return self._read_table(spark, body, part_pattern(chosen.name, self.id, body.format), schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.isActive:
            self.stop(timeout=None if kind is None else at_exit.AFTER_AN_ERROR_S)
        if kind is None and self._unseen_error is not None:
            self._raise_error()

    def __repr__(self) -> str:
        return f"<Run {self.name} {self._state()} id={self.id[:8]}>"

    def _state(self) -> str:
        """The state in one line: starting, running, draining, finished, or failed with its cause."""
        last, error = self.lastProgress or {}, self._server.error
        if not self.isActive:
            state = "finished" if error is None else f"failed: {headline(error)}"
        else:
            state = self._feeds.status(str(last.get("status", self._server.phase.value)))
        lost = ", ".join(last.get("stateLost", ()))
        return f"{state}; state lost: {lost}" if lost else state

    def _report(self) -> None:
        ended = False
        try:
            while not ended:
                ended = self._server.wait(PROGRESS_S)
                error = self._server.error
                cause = None if error is None else headline(error)
                progress = self._server.progress()
                status = self._feeds.status(progress["status"])
                self._recent.append({**progress, "status": status, "error": cause, "queries": self._feeds.progress()})
                self._journals.warn_of_hosts(
                    [worker["host"] for worker in self._recent[-1]["workers"] if worker["host"]]
                )
        finally:
            self._server.wait(None)
            self._feeds.close()
            self._journals.release(finished=self._server.error is None)
            self._ended.set()
            if self._server.error is None:
                at_exit.forget(self)


def check_start(topology: Topology, options: RunSettings, place: Place) -> None:
    """Raise what ``HostedRun`` would, as far as that is known before there is anything to read. Starts nothing.

    What a checkpoint holds is looked at when the run starts. So are feeds: they belong to a job, which has no id yet.
    """
    plan = _checked_plan(topology, options)
    if options.encrypt:
        make_certificate()
    listen(place.bind, options.ports, 1).close()
    RunJournals(plan).release(finished=False)  # last, as it makes folders


def _checked_plan(topology: Topology, options: RunSettings) -> Plan:
    """The plan of a run. Raises an error if the options do not allow it."""
    plan = make_plan(topology, options.workers, name_all=options.record is not None)
    check_sharing(plan, options.tail.shared_queues)
    if options.record is not None:
        check_folder(Path(options.record).absolute())
    return plan


def _checked(timeout: Any) -> float | None:
    """The timeout, checked and limited to what ``threading`` accepts."""
    if timeout is None:
        return None
    if not is_number(timeout) or timeout < 0:
        raise OptionError(f"not a timeout: timeout={shorten(timeout)}; is it a number of seconds, zero or more?")
    return min(float(timeout), threading.TIMEOUT_MAX)


def _warn_of_sources_without_replay(plan: Plan) -> None:
    for operator in plan.operators:
        if operator.operator.role is Role.SOURCE and not operator.operator.body.replayable:
            logger.warning(
                "source %s cannot be replayed: what it has read and no sink has committed is lost if its worker dies",
                operator.name,
            )


def _warn_of_unshared_queues(plan: Plan, tail: Tail) -> None:
    wanted = tail.shared_queues
    if wanted is not None and not any(plan.shares(task, wanted) for task in range(len(plan.home))):
        logger.warning("no worker has two tasks that could draw from one queue: shared_queues=%r does nothing", wanted)
    for operator in plan.operators:
        if operator.scope(wanted) not in (None, wanted):
            logger.warning(
                "tasks of operator %s draw from one queue in each worker, not on each node: it is reached by load",
                operator.name,
            )


def _warn_of_unhedged_sources(plan: Plan, tail: Tail) -> None:
    for refused in check_hedging(plan, tail):
        logger.warning("late roots of source %s are not hedged: it leads to %s", *refused.split(": ", 1))


def _warn_of_useless_send_order(plan: Plan, tail: Tail, link_scope: str) -> None:
    if link_scope == NODE:
        return  # tasks of several workers share the uplink, and which workers share a machine is not known yet
    if tail.send is not None and not any(map(plan.sends_beside, range(len(plan.home)))):
        logger.warning(
            "no worker has two tasks of an operator that send to other workers: send=%s does nothing", tail.send.name
        )
