"""What workers print is shown by a thread of its own: no stream, however slow or broken, holds up who hears them."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from tailrace.runtime.driver import display as module
from tailrace.runtime.driver.display import Display
from tailrace.runtime.links.control import LogLine, Logs
from tailrace.testing.processes import wait_until


@pytest.fixture
def display() -> Iterator[Display]:
    display = Display()
    display.start()
    yield display
    display.close()


@contextmanager
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """Meanwhile stdout is a pipe, which this reads from the other end of, or does not."""
    reading, writing = os.pipe()
    stdout = os.fdopen(writing, "w", encoding="utf-8")
    with monkeypatch.context() as patched, os.fdopen(reading, encoding="utf-8") as reader, stdout:
        patched.setattr(sys, "stdout", stdout)
        yield reader


def printed(*texts: str, label: str = "m/0") -> Logs:
    return Logs([LogLine(label, 0, "", text) for text in texts], 0)


def test_lines_come_in_order_with_their_labels(display: Display, capsys: pytest.CaptureFixture[str]) -> None:
    display.show(0, printed("one", "two"))
    display.show(1, Logs([LogLine("", 0, "", "three")], 1200))
    display.close()
    dropped = "[worker 1] … 1,200 more lines were dropped: they came too fast"
    assert capsys.readouterr().out.splitlines() == ["[m/0] one", "[m/0] two", "[worker 1] three", dropped]


def test_what_was_logged_is_logged(display: Display, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        display.show(0, Logs([LogLine("m/0", logging.INFO, "mine", "100% sure")], 0))
        display.warn("worker 0 is gone")
        display.close()
    found = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    assert found == [("mine", logging.INFO, "[m/0] 100% sure"), ("tailrace", logging.WARNING, "worker 0 is gone")]


def test_a_long_line_is_whole(display: Display, capsys: pytest.CaptureFixture[str]) -> None:
    text = "ä€𝄞" * 2000
    display.show(0, printed(text))
    display.close()
    assert capsys.readouterr().out == f"[m/0] {text}\n"


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", b"\\ud83d \xe2\x82\xac"), ("ascii", b"\\ud83d \\u20ac")])
def test_what_a_stream_cannot_say_is_spelled(
    display: Display, monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    display.show(0, printed("\ud83d €"))
    display.close()
    assert raw.getvalue() == b"[m/0] " + shown + b"\n"


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, Broken(), closed()])
def test_a_stream_that_takes_nothing_is_no_matter(
    display: Display, monkeypatch: pytest.MonkeyPatch, stream: object
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        display.show(0, printed("lost"))
        wait_until(lambda: display._shown == 1, 10, "the line to be tried")
    assert display._thread.is_alive()


def test_a_pipe_that_nobody_reads_for_a_while(display: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits, memory is bounded, and what was dropped is counted. Once it is read, the rest is there."""
    monkeypatch.setattr(module, "MOST_LINES", 500)
    with pipe(monkeypatch) as reader:
        for number in range(3000):
            display.show(0, printed(f"{number} {'x' * 100}"))
        assert len(display._lines) <= 501, "memory is bounded"
        numbers: list[int] = []
        dropped = 0
        while len(numbers) + dropped < 3000:
            line = reader.readline()
            if line.startswith("["):
                numbers.append(int(line.split()[1]))
            else:
                assert line.endswith(" more lines were dropped: standard output was blocked\n")
                dropped += int(line.split()[1].replace(",", ""))
    assert dropped > 1000 and numbers == sorted(set(numbers))


def test_the_end_does_not_wait_for_a_pipe_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.2)
    with pipe(monkeypatch):
        display = Display()
        display.start()
        display.show(0, printed(*("x" * 1000 for _ in range(200))))
        display.close()
        display._thread.join(10)
        assert not display._thread.is_alive(), "it sits in a write"
