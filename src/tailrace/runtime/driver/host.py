"""A host starts worker processes. This one starts plain subprocesses on the driver's machine.

A worker gets the run's secret through its standard input. Other users could read it in the arguments, and child
processes in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tailrace.runtime.links.control import Bootstrap

ZOMBIE_S = 30.0
"""How long a process that was declared dead may take to notice and exit, before it is killed."""

PORT_S = 1.0
"""How long such a process may live where ports are given, because the process that takes its place
may wait for the port that it has."""

Exited = Callable[[int, int, str], None]
"""Called with (worker, epoch, reason) when a worker's process is gone."""


class Host(Protocol):
    """Starts and ends worker processes.

    Law: ``start`` returns at once, or raises OSError and has started nothing; every process started is reported to
    ``exited`` once, when it is gone; after ``close`` there is none left.
    """

    def start(self, bootstrap: Bootstrap, exited: Exited) -> None: ...

    def abandon(self, worker: int, epoch: int, silent: bool = False) -> None:
        """The coordinator has replaced this process. Give it time to notice, then end it. ``silent``: nothing was heard
        of it, so that where it is may be cut off."""
        ...

    def close(self) -> None: ...


class SubprocessHost:
    """Runs workers as child processes of the driver.

    ``prefixes`` holds, by worker, words to put before its command line, such as ``ip netns exec NAME``.
    """

    def __init__(self, prefixes: Mapping[int, Sequence[str]] | None = None) -> None:
        self._prefixes = prefixes or {}
        self._processes: dict[tuple[int, int], subprocess.Popen[bytes]] = {}
        self._with_ports: set[tuple[int, int]] = set()
        self._timers: list[threading.Timer] = []
        self._lock = threading.Lock()

    def start(self, bootstrap: Bootstrap, exited: Exited) -> None:
        command = [*self._prefixes.get(bootstrap.worker, ()), sys.executable, "-m", "tailrace.runtime"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(path) or str(Path.cwd()) for path in sys.path)}
        # A process group of its own keeps Ctrl-C in the terminal from reaching it.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0)
        with self._lock:
            self._processes[bootstrap.worker, bootstrap.epoch] = process
            if bootstrap.ports is not None:
                self._with_ports.add((bootstrap.worker, bootstrap.epoch))
        assert process.stdin is not None
        try:
            process.stdin.write(bootstrap.to_json().encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has exited already, which the waiting thread will report
        name = f"wait-{bootstrap.worker}"
        try:
            threading.Thread(target=self._wait, args=(bootstrap, process, exited), name=name, daemon=True).start()
        except RuntimeError as error:  # no threads left
            process.kill()
            process.wait()
            raise OSError(str(error)) from error

    def _wait(self, bootstrap: Bootstrap, process: subprocess.Popen[bytes], exited: Exited) -> None:
        code = process.wait()
        with self._lock:
            self._processes.pop((bootstrap.worker, bootstrap.epoch), None)
        exited(bootstrap.worker, bootstrap.epoch, f"killed by signal {-code}" if code < 0 else f"exit code {code}")

    def abandon(self, worker: int, epoch: int, silent: bool = False) -> None:
        with self._lock:
            process = self._processes.get((worker, epoch))
        if process is not None:
            patience_s = PORT_S if (worker, epoch) in self._with_ports else ZOMBIE_S
            timer = threading.Timer(patience_s, process.kill)
            timer.daemon = True
            try:
                timer.start()
                self._timers.append(timer)
            except RuntimeError:  # no threads left
                process.kill()

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
