"""A protocol for the event loop that serves links. The runners in ``execution`` are event loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tailrace.runtime.encryption.connection import Connection

Handler = Callable[[bool, bool], None]
"""Called with (readable, writable), in the thread of the event loop."""

File = Connection | int

Post = Callable[[Callable[[], None]], None]
"""Hands an action to the thread that is to carry it out."""


class SleepHook(Protocol):
    """Something that peers signal only while the event loop sleeps."""

    def prepare_sleep(self) -> bool:
        """The loop is about to sleep: ask peers for a signal. False if there is work, so that it must not sleep."""
        ...

    def awake(self) -> None:
        """The loop has woken up, or did not sleep after all."""
        ...


class EventLoop(Protocol):
    """One thread that waits for files and serves them. Other threads may only ``post`` and ``wake``."""

    sleep_hooks: list[SleepHook]

    def watch(self, file: File, handler: Handler, *, reading: bool, writing: bool, alone: bool = False) -> None:
        """Call the handler when the file is ready.

        ``alone``: of all loops that sleep and watch the same file, in any process, only one is woken. Such a file
        cannot be rewatched.
        """
        ...

    def rewatch(self, file: File, *, reading: bool, writing: bool) -> None:
        """Wait for something else from now on."""
        ...

    def unwatch(self, file: File) -> None: ...

    def post(self, action: Callable[[], None]) -> None:
        """Carry this out in the loop's thread, soon."""
        ...

    def wake(self) -> None: ...
