"""The feeds of a run: halves of sources that live on the driver, and bring records while the run goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from tailrace.connector import Feed, FeedContext
from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.core.protocol.messages import Position
from tailrace.errors import TailraceError
from tailrace.metrics.progress import RUNNING
from tailrace.runtime.driver.server import CoordinatorServer
from tailrace.signals import wait_for
from tailrace.topology import Role

POLL_S = 0.01

CLOSE_S = 30.0
"""How long a feed may take to close at the end of a run. It is left alone then."""

_log = logging.getLogger("tailrace")


class RunFeeds:
    """All feeds of one run, from before its workers are started until it is over."""

    def __init__(self, plan: Plan, positions: Mapping[int, Position], job_id: str) -> None:
        self.draining = False  # from the moment at which a drain has begun to stop them
        self._plan = plan
        self._starts = positions
        self._server: CoordinatorServer | None = None
        self._failed: Exception | None = None
        self._lock = threading.Lock()  # of the two above
        self._feeds: dict[str, Feed] = {}
        self._tasks: set[int] = set()
        try:
            for operator in plan.operators:
                body = operator.operator.body
                if operator.operator.role is Role.SOURCE and hasattr(body, "feed"):
                    durable = partial(self._durable, operator)
                    context = FeedContext(plan.name, operator.name, job_id, durable(), durable, self._ended)
                    self._feeds[operator.name] = body.feed(context)
                    self._tasks.update(range(operator.first_task, operator.first_task + operator.tasks))
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        for feed in self._feeds.values():
            feed.start()

    def join(self, server: CoordinatorServer) -> None:
        """From now on the feeds know what is durable, and a feed that fails ends the run."""
        with self._lock:
            self._server = server
            failed = self._failed
        if failed is not None:
            server.fail(failed)

    def progress(self) -> dict[str, Mapping[str, Any] | None]:
        return {name: feed.progress for name, feed in self._feeds.items()}

    def status(self, told: str) -> str:
        """The state of the run in a word, where the coordinator tells this: it is not draining before the feeds are."""
        return "draining" if self.draining and told == RUNNING else told

    def drain(self, ended: threading.Event, timeout_s: float | None) -> bool:
        """Stop all feeds, and wait until what they have brought is durable, or the run has ended. False: not in time.

        It can be interrupted. The feeds are stopped in a thread of its own, which goes on.
        """
        server = self._server
        if not self._feeds or server is None or ended.is_set():
            return True
        self.draining = True
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        if not wait_for(self._in_thread("stop"), timeout_s):
            return False
        while not (server.has_settled(self._tasks) or ended.wait(POLL_S)):
            if deadline_s is not None and time.monotonic() > deadline_s:
                return False
        return True

    def close(self) -> None:
        """The run is over, or does not begin."""
        if self._feeds and not wait_for(self._in_thread("close"), CLOSE_S):
            _log.warning(
                "a feed does not stop, and is left alone with what it holds: sources=%s seconds=%g, "
                "does its query still compute a batch?",
                ", ".join(self._feeds),
                CLOSE_S,
            )

    def _in_thread(self, method: Literal["stop", "close"]) -> threading.Event:
        """Call a method of all feeds. The event says that it is done, with errors or not."""
        done = threading.Event()

        def call() -> None:
            for name, feed in self._feeds.items():
                try:
                    getattr(feed, method)()
                except Exception as error:  # of a connector, which may raise anything
                    text = f"a feed did not {method}: source={name} cause={error!r}; is its driver's half broken?"
                    _log.warning("%s", text)
                    if method == "stop":  # its readers would wait for ever
                        self._ended(TailraceError(text))
            done.set()

        threading.Thread(target=call, name=f"tailrace-feeds-{method}", daemon=True).start()
        return done

    def _durable(self, operator: OperatorPlan) -> Mapping[str, int]:
        with self._lock:
            positions = self._starts if self._server is None else self._server.positions
        splits = [split for split in self._plan.splits if split.source == operator.index]
        return {split.name: positions[split.index].offset for split in splits}

    def _ended(self, error: Exception | None) -> None:
        if error is None:
            return  # its readers come to their end, and with them the run
        with self._lock:
            self._failed = error
            server = self._server
        if server is not None:
            server.fail(error)
