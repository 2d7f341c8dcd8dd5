"""A worker that keeps dying: what is said of it fits how it died."""

from __future__ import annotations

import pytest

from tailrace.core.protocol.worker_deaths import keeps_dying

HELD_BACK = [("lines/a.txt", 70), ("lines/b.txt", 0), ("lines/c.txt", 5), ("lines/d.txt", 9)]


@pytest.mark.parametrize(
    ("why", "rest"),
    [
        (
            "killed by signal 11",
            " pending=lines/a.txt offset 70, lines/b.txt offset 0, lines/c.txt offset 5 and 1 more; "
            "does a tuple crash it?",
        ),
        (
            "its connection ended",
            " pending=lines/a.txt offset 70, lines/b.txt offset 0, lines/c.txt offset 5 and 1 more; "
            "does a tuple crash it, or is the way to the driver cut?",
        ),
        ("exit code 4", "; does another run write to the same output?"),
        ("exit code 5", "; can it reach the driver?"),
        ("it did not start in time", "; are there enough free slots, and can it reach the driver?"),
        (
            "no sign of life for 3 s",
            "; does a function hold the interpreter for longer than heartbeat_timeout_s?",
        ),
        (
            "its connection broke: not the next message",
            "; does something else use its port, or was a message too large?",
        ),
    ],
)
def test_the_question_fits_the_death(why: str, rest: str) -> None:
    text = keeps_dying(1, 10, why, ["parse", "model"], HELD_BACK)
    assert text == f"a worker keeps dying: worker=1 deaths=10 last={why!r} operators=parse, model{rest}"
