"""A runner is a thread that runs tasks: it reads their links, lets them work in turn, and sends what they leave.

One runner a worker is shared by all tasks whose calls are short; every task whose calls are long has one to itself.
Tasks of one runner hand tuples to each other without a lock, a wake-up or a switch between threads. Downstream tasks
go first, so that what is under way gets finished before more is begun.

A call that does not return would stop all tasks of a shared runner. Then another thread takes the runner over, with all
tasks but that one, and the thread in the call goes on as the runner of this task alone. The *seat* decides who is who:
the thread that runs the tasks holds it, except while it is in a call. Another thread that has got hold of the seat
therefore knows that the first touches nothing but the inside of one task, and will wait for the seat when it returns.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tailrace.clock import MILLISECOND_NS, SECOND_NS, system_clock
from tailrace.runtime.execution.stuck_calls import Place, place_in

if TYPE_CHECKING:
    from tailrace.runtime.execution.task_host import TaskHost
    from tailrace.runtime.send_order.send_loop import SendLoop

Handler = Callable[[bool, bool], None]
File = socket.socket | int

IDLE_NS = 200 * MILLISECOND_NS
"""How long a runner sleeps when nothing is due."""

ACCOUNT_NS = 200 * MILLISECOND_NS
"""How often a runner looks up the CPU time it has used."""

SELECT_LIMIT = 1024
"""File numbers from which ``select`` cannot be used."""

_ENDED = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP


class Sleeper(Protocol):
    """Something that others tell of what happens only while the runner sleeps."""

    def rest(self) -> bool:
        """The runner is about to sleep: have it woken. False if there is something to do."""
        ...

    def rise(self) -> None:
        """It does not sleep, or not any more."""
        ...


class LeftBehind(Exception):
    """The thread that gets this runs one task from now on, with this runner. Another runs those it had."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner.name)
        self.runner = runner


class Runner:
    """Runs tasks until it is told to stop. Everything but ``post`` and ``wake`` belongs to its own thread, or to one
    that holds the seat in its place."""

    def __init__(
        self,
        name: str,
        on_error: Callable[[BaseException], None],
        isolate: Callable[[TaskHost], None] = lambda host: None,
    ) -> None:
        self.name = name
        self._isolate = isolate  # gives a host a runner of its own; only a shared runner needs it
        self.hosts: list[TaskHost] = []
        self.sleepers: list[Sleeper] = []
        self.send_loop: SendLoop | None = None  # goes last, with what the others have left to it
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
        self.seat = _taken_seat()  # by its thread, or who will be that
        self._thread = self._new_thread()

    # -- from any thread

    def start(self) -> None:
        self._thread.start()

    def post(self, action: Callable[[], None]) -> None:
        """Have this done by the runner's thread, soon."""
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
        """Whether it sleeps, and could start on a tuple at once."""
        return self._asleep

    def since_ns(self, host: TaskHost) -> int:
        """When the call of this task began that has been under way for longest; 0: none is."""
        return host.busy_since_ns

    def place_of_call(self, host: TaskHost) -> Place | None:
        """Where that call is."""
        return place_in(self._thread.ident, host.label)

    def stop(self) -> None:
        self.post(self._halt)

    def join(self, timeout_s: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # -- sockets and pipes

    def watch(self, file: File, handler: Handler, *, reading: bool, writing: bool, alone: bool = False) -> None:
        """``alone``: of all runners that sleep and watch the same, here or elsewhere, one is woken. Not to rewatch."""
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

    def adopt(self, host: TaskHost) -> None:
        """Run this task from now on."""
        host.moved_to(self)
        self.hosts.append(host)
        self.hosts.sort(key=lambda host: -host.task.number)

    def release(self, host: TaskHost) -> None:
        self.hosts.remove(host)
        host.moved_to(None)

    def leave_behind(self, host: TaskHost, own: Runner) -> None:
        """Have all tasks but this one run by another thread from now on. The caller holds the seat.

        The thread that is in a call of this task runs the task alone from then on, as the thread of ``own``.
        """
        self.release(host)
        own.adopt(host)
        own._thread, own.seat = self._thread, self.seat
        self._thread, self.seat = self._new_thread(), _taken_seat()
        self._thread.start()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._main, name=self.name, daemon=True)

    def _main(self) -> None:
        self._cpu_ns = time.thread_time_ns()
        try:
            self._loop()
        except LeftBehind as left:
            left.runner._main()
        except BaseException as error:  # whatever it is, the run must hear of it
            self._on_error(error)
        finally:
            if self._thread is threading.current_thread():
                self._close()

    def _close(self) -> None:
        self._asleep = False  # from here on there is nobody to wake, and the bell's number may be someone else's
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
        """Once around: see what has happened, or wait for it, deal with it, and let every task work a little."""
        found = self._epoll.poll(0)  # first, as to find out how long to wait takes longer
        if not found and wait:
            found = self._wait(self.sleep_ns)
        for number, events in found:
            handler = self._handlers.get(number)
            if handler is not None:
                handler(bool(events & (select.EPOLLIN | _ENDED)), bool(events & select.EPOLLOUT))
            elif number == self._bell:
                os.eventfd_read(self._bell)
        self.do_posted()
        now_ns = system_clock()
        for host in tuple(self.hosts):
            host.work(now_ns)
            if host.runner is not self:
                assert host.runner is not None
                raise LeftBehind(host.runner)
            if host.wants_own_runner:  # only now: two threads must never work on one task
                host.wants_own_runner = False
                self.release(host)
                self._isolate(host)
        if self.send_loop is not None:
            self.send_loop.work()
        if now_ns >= self._account_ns:
            self._account_ns = now_ns + ACCOUNT_NS
            self._account()

    def do_posted(self) -> None:
        while self._posted:
            self._posted.popleft()()

    def _account(self) -> None:
        """Share out the thread's CPU time by how long each task has worked: asking for it costs as much as a tuple."""
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
            if not self.lie_down() or self.has_news:
                return self._epoll.poll(0)
            number = self._epoll.fileno()
            if sleep_ns % MILLISECOND_NS and sleep_ns < 10 * MILLISECOND_NS and number < SELECT_LIMIT:
                # epoll counts in whole milliseconds, which is too coarse for a source that is due in 0.2 ms
                select.select([number], (), (), sleep_ns / SECOND_NS)
                return self._epoll.poll(0)
            return self._epoll.poll(sleep_ns / SECOND_NS)
        finally:
            self.get_up()

    def lie_down(self) -> bool:
        """From now on others must ring the bell. False if there is something to do that they would not ring for."""
        self._asleep = True
        return all(sleeper.rest() for sleeper in self.sleepers)

    def get_up(self) -> None:
        self._asleep = False
        for sleeper in self.sleepers:
            sleeper.rise()

    @property
    def has_news(self) -> bool:
        """Whether something has come that nobody will ring for again."""
        if self._posted or any(host.has_news for host in self.hosts):
            return True
        return self.send_loop is not None and self.send_loop.has_news

    @property
    def sleep_ns(self) -> int:
        """Until when nothing needs to be done unless something happens."""
        if self._posted:
            return 0
        now_ns = system_clock()
        wake_ns = min((host.wake_ns(now_ns) for host in self.hosts), default=now_ns + IDLE_NS)
        if self.send_loop is not None:
            wake_ns = min(wake_ns, self.send_loop.wake_ns(now_ns))
        return wake_ns - now_ns

    def fileno(self) -> int:
        return self._epoll.fileno()


def _taken_seat() -> threading.Lock:
    seat = threading.Lock()
    seat.acquire()
    return seat


def _number(file: File) -> int:
    return file if isinstance(file, int) else file.fileno()


def _mask(reading: bool, writing: bool) -> int:
    return (select.EPOLLIN | select.EPOLLRDHUP if reading else 0) | (select.EPOLLOUT if writing else 0)
