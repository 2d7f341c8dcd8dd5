"""A runner is a thread that runs tasks: it serves their links, lets them work in turn, and sends what they leave.

One runner of a worker is shared by all tasks whose calls are short; every task whose calls are long has one to itself.
Tasks of one runner pass tuples to each other without a lock, a wake-up or a switch between threads. Downstream tasks
go first, so that tuples under way get finished before new ones are begun.

A call that does not return would stop all tasks of a shared runner. Therefore another thread can take the runner over,
with all tasks but that one, and the thread in the call goes on as the runner of this task alone. The *run lock* makes
this safe: the runner's thread holds it, except while it is in a call. Another thread that has acquired the lock knows
that the first touches nothing but the inside of one task, and will wait for the lock when its call returns.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tailrace.clock import MILLISECOND_NS, SECOND_NS, system_clock
from tailrace.runtime.execution.call_sites import CallSite, call_site_in
from tailrace.runtime.links.event_loop import File, Handler, SleepHook

IDLE_NS = 200 * MILLISECOND_NS
"""How long a runner sleeps when nothing is due."""

ACCOUNT_NS = 200 * MILLISECOND_NS
"""How often a runner reads the CPU time it has used."""

SELECT_LIMIT = 1024
"""File numbers from which ``select`` cannot be used."""

_ENDED = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP


class Runnable(Protocol):
    """Something that works in turns on a runner."""

    def work(self, now_ns: int) -> None:
        """Work for about a slice. The turn began at ``now_ns``."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether something has come that will not be signalled again."""
        ...

    def wake_ns(self, now_ns: int) -> int:
        """When it wants to work next, if nothing happens before."""
        ...


class RunnableTask(Runnable, Protocol):
    """A task, as its runner sees it. It can move from one runner to another."""

    label: str
    number: int
    runner: Runner | None
    shared: bool  # the runner has other tasks too
    wants_own_runner: bool
    busy_since_ns: int  # when its present call began; 0: it is in none
    worked_ns: int  # wall time since the runner last asked
    cpu_ns: int  # its share of the runner's CPU time

    def moved_to(self, runner: Runner | None) -> None: ...

    def leave_shared_runner(self) -> None:
        """It gets a runner of its own."""
        ...


class Detached(Exception):
    """Tells a thread that it runs one task from now on, with this runner. Another thread runs those it had."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner.name)
        self.runner = runner


class Runner:
    """Runs tasks until ``stop``. It is the event loop of their links.

    Everything but the methods "from any thread" belongs to its own thread, or to one that holds the run lock.
    """

    def __init__(
        self,
        name: str,
        on_error: Callable[[BaseException], None],
        isolate: Callable[[RunnableTask], None] = lambda host: None,
    ) -> None:
        self.name = name
        self.isolate = isolate  # gives a task a runner of its own; only a shared runner needs it
        self.hosts: list[RunnableTask] = []
        self.sleep_hooks: list[SleepHook] = []
        self.last: Runnable | None = None  # works after all tasks: the send loop, with what they have left to it
        self._on_error = on_error
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._handlers: dict[int, Handler] = {}
        self._posted: deque[Callable[[], None]] = deque()
        self._asleep = False
        self._stopped = False
        self._account_ns = 0
        self._cpu_ns = 0
        self.run_lock = _held_lock()  # by its thread, or the one that will be that
        self._thread = self._new_thread()

    # -- from any thread

    def start(self) -> None:
        self._thread.start()

    def post(self, action: Callable[[], None]) -> None:
        """Carry this out in the runner's thread, soon."""
        self._posted.append(action)
        self.wake()

    def wake(self) -> None:
        if self._asleep:
            self._asleep = False
            try:
                os.eventfd_write(self._bell, 1)
            except OSError:
                pass  # it has just ended

    @property
    def idle(self) -> bool:
        """Whether it sleeps, and could run a tuple at once."""
        return self._asleep

    def oldest_call_ns(self, host: RunnableTask) -> int:
        """When the oldest call of this task that is under way began; 0: none is."""
        return host.busy_since_ns

    def call_site_of(self, host: RunnableTask) -> CallSite | None:
        """Where that call is."""
        return call_site_in(self._thread.ident, host.label)

    def stop(self) -> None:
        self.post(self._halt)

    def join(self, timeout_s: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # -- sockets and pipes: see ``EventLoop``

    def watch(self, file: File, handler: Handler, *, reading: bool, writing: bool, alone: bool = False) -> None:
        number = _number(file)
        self._handlers[number] = handler
        self._epoll.register(number, select.EPOLLIN | select.EPOLLEXCLUSIVE if alone else _mask(reading, writing))

    def rewatch(self, file: File, *, reading: bool, writing: bool) -> None:
        self._epoll.modify(_number(file), _mask(reading, writing))

    def unwatch(self, file: File) -> None:
        number = _number(file)
        if self._handlers.pop(number, None) is not None:
            self._epoll.unregister(number)

    # -- the loop

    def adopt(self, host: RunnableTask) -> None:
        """Run this task from now on."""
        host.moved_to(self)
        self.hosts.append(host)
        self.hosts.sort(key=lambda host: -host.number)

    def release(self, host: RunnableTask) -> None:
        self.hosts.remove(host)
        host.moved_to(None)

    def detach(self, host: RunnableTask, own: Runner) -> None:
        """Have all tasks but this one run by another thread from now on. The caller holds the run lock.

        The thread that is in a call of this task goes on as the thread of ``own``, which runs this task alone.
        """
        self.release(host)
        own.adopt(host)
        own._thread, own.run_lock = self._thread, self.run_lock
        self._thread, self.run_lock = self._new_thread(), _held_lock()
        self._thread.start()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._main, name=self.name, daemon=True)

    def _main(self) -> None:
        self._cpu_ns = time.thread_time_ns()
        try:
            self._loop()
        except Detached as detached:
            detached.runner._main()
        except BaseException as error:  # whatever it is, the run must fail with it
            self._on_error(error)
        finally:
            if self._thread is threading.current_thread():
                self._close()

    def _close(self) -> None:
        self._asleep = False  # nothing may ring from here on: the bell's file number may be reused
        self._epoll.close()
        os.close(self._bell)

    def _loop(self) -> None:
        while not self._stopped:
            self.turn(wait=True)

    def _halt(self) -> None:
        self._stopped = True

    @property
    def stopped(self) -> bool:
        return self._stopped

    def turn(self, wait: bool) -> None:
        """Serve the files that are ready, after waiting for some if asked to; then let every task work a little."""
        found = self._epoll.poll(0)  # first: to compute how long to wait takes longer
        if not found and wait:
            found = self._wait(self.sleep_ns)
        for number, events in found:
            handler = self._handlers.get(number)
            if handler is not None:
                handler(bool(events & (select.EPOLLIN | _ENDED)), bool(events & select.EPOLLOUT))
            elif number == self._bell:
                os.eventfd_read(self._bell)
        self.run_posted()
        now_ns = system_clock()
        for host in tuple(self.hosts):
            host.work(now_ns)
            if host.runner is not self:
                assert host.runner is not None
                raise Detached(host.runner)
            if host.wants_own_runner:  # only here: two threads must never work on one task
                host.wants_own_runner = False
                self.release(host)
                self.isolate(host)
        if self.last is not None:
            self.last.work(now_ns)
        if now_ns >= self._account_ns:
            self._account_ns = now_ns + ACCOUNT_NS
            self._account()

    def run_posted(self) -> None:
        while self._posted:
            self._posted.popleft()()

    def _account(self) -> None:
        """Divide the thread's CPU time by how long each task has worked. To read it for each would cost as a tuple."""
        cpu_ns = time.thread_time_ns()
        spent_ns, self._cpu_ns = cpu_ns - self._cpu_ns, cpu_ns
        worked_ns = sum(host.worked_ns for host in self.hosts)
        for host in self.hosts:
            if worked_ns:
                host.cpu_ns += spent_ns * host.worked_ns // worked_ns
            host.worked_ns = 0

    def _wait(self, sleep_ns: int) -> list[tuple[int, int]]:
        if sleep_ns <= 0:
            return self._epoll.poll(0)
        try:
            if not self.prepare_sleep() or self.has_work:
                return self._epoll.poll(0)
            number = self._epoll.fileno()
            if sleep_ns % MILLISECOND_NS and sleep_ns < 10 * MILLISECOND_NS and number < SELECT_LIMIT:
                # epoll counts in whole milliseconds, which is too coarse for a source that is due in 0.2 ms
                select.select([number], (), (), sleep_ns / SECOND_NS)
                return self._epoll.poll(0)
            return self._epoll.poll(sleep_ns / SECOND_NS)
        finally:
            self.awake()

    def prepare_sleep(self) -> bool:
        """Have others ring the bell from now on. False if there is work that will not be signalled."""
        self._asleep = True
        return all(hook.prepare_sleep() for hook in self.sleep_hooks)

    def awake(self) -> None:
        self._asleep = False
        for hook in self.sleep_hooks:
            hook.awake()

    @property
    def has_work(self) -> bool:
        """Whether something has come that will not be signalled again."""
        if self._posted or any(host.has_work for host in self.hosts):
            return True
        return self.last is not None and self.last.has_work

    @property
    def sleep_ns(self) -> int:
        """How long there is nothing to do unless something happens."""
        if self._posted:
            return 0
        now_ns = system_clock()
        wake_ns = min((host.wake_ns(now_ns) for host in self.hosts), default=now_ns + IDLE_NS)
        if self.last is not None:
            wake_ns = min(wake_ns, self.last.wake_ns(now_ns))
        return wake_ns - now_ns

    def fileno(self) -> int:
        return self._epoll.fileno()


def _held_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _number(file: File) -> int:
    return file if isinstance(file, int) else file.fileno()


def _mask(reading: bool, writing: bool) -> int:
    return (select.EPOLLIN | select.EPOLLRDHUP if reading else 0) | (select.EPOLLOUT if writing else 0)
