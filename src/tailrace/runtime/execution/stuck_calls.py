"""Calls that do not return: the user is warned of them, and the tasks on the same runner go on without them.

The thread that sends heartbeats looks at all tasks of its worker, every quarter of a second. This costs the tasks
nothing: they store when a call begins, and everything else is read from the frames of their threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tailrace.clock import SECOND_NS
from tailrace.runtime.execution.task_host import TaskHost

DETACH_NS = 1 * SECOND_NS
"""After so long in a call the other tasks of the runner get another thread. It is longer than a garbage collection or
a slow disk takes, and a third of the silence after which a worker counts as dead."""

WARN_NS = 10 * SECOND_NS
"""After so long the user is warned, and again whenever the time has doubled. A task whose calls normally take that long
is therefore named a few times in all, not with each call."""


class StuckCalls:
    """Watches the calls of one worker. Used by one thread, except ``draining``.

    ``detach`` has the other tasks of a host's runner go on without it; ``say`` warns the user, once per topic.
    """

    def __init__(self, detach: Callable[[TaskHost], None], say: Callable[[str, str], None]) -> None:
        self.draining = False
        self._detach = detach
        self._say = say
        self._warn_after_ns: dict[str, int] = {}  # by label
        self._was_draining = False

    def look(self, hosts: Iterable[TaskHost], now_ns: int) -> None:
        if self.draining and not self._was_draining:
            self._was_draining = True
            self._warn_after_ns.clear()  # warn again: the end of the run waits for these calls now
        for host in hosts:
            began_ns = host.oldest_call_ns
            if not began_ns or now_ns - began_ns < DETACH_NS:
                continue
            if host.shared:
                self._free_the_others(host, now_ns)
            if host.busy_since_ns:
                host.snapshot_while_busy(now_ns)
            warn_after_ns = self._warn_after_ns.get(host.label, WARN_NS)
            if now_ns - began_ns >= warn_after_ns:
                self._warn(host, (now_ns - began_ns) // SECOND_NS, warn_after_ns)

    def _free_the_others(self, host: TaskHost, now_ns: int) -> None:
        assert host.runner is not None
        run_lock = host.runner.run_lock
        if not run_lock.acquire(blocking=False):
            return  # the call has returned
        try:
            began_ns = host.busy_since_ns
            if host.shared and began_ns and now_ns - began_ns >= DETACH_NS:
                self._detach(host)
        finally:
            run_lock.release()

    def _warn(self, host: TaskHost, seconds: int, warn_after_ns: int) -> None:
        assert host.runner is not None
        site = host.runner.call_site_of(host)
        if site is None:
            return
        self._warn_after_ns[host.label] = 2 * max(warn_after_ns, seconds * SECOND_NS)
        end = ", and the run cannot end before it does" if self.draining else ""
        self._say(
            f"stuck {site.operator}/{site.task} {seconds}",
            f"a call has not returned for {seconds} s{end}: {site}; does it wait for something that never comes?",
        )
