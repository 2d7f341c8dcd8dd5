"""What an error, a traceback and a dead letter say of exceptions that say too much, or nothing."""

from __future__ import annotations

import json

from tailrace.core.failures import dead_letter, task_error
from tailrace.errors import LONGEST_MESSAGE, message_of

MEGABYTES = 5_000_000


class Wordless(Exception):
    """Stands for an exception whose words are broken."""

    def __str__(self) -> str:
        raise AttributeError("response")


def test_an_error_without_words_is_told_all_the_same() -> None:
    letter = dead_letter("score", 0, 7, Wordless())
    assert letter["error"].endswith("Wordless: <exception str() failed>")
    assert "Wordless" in str(task_error("score", 0, 7, Wordless()))
    assert message_of(Wordless()) == ""


def test_a_long_message_is_cut() -> None:
    error = ValueError("x" * MEGABYTES)
    assert message_of(error) == "x" * LONGEST_MESSAGE + f"… ({MEGABYTES} characters)"
    letter = dead_letter("score", 0, 7, error)
    assert letter["error"].endswith(f"x… ({MEGABYTES + len('ValueError: ')} characters)")
    assert len(json.dumps(letter)) < 3 * LONGEST_MESSAGE
    assert len(str(task_error("score", 0, 7, error))) < 2 * LONGEST_MESSAGE


def test_lines_of_a_traceback_stay_lines() -> None:
    try:
        try:
            raise OSError("z" * MEGABYTES)
        except OSError as cause:
            raise ValueError("y" * MEGABYTES) from cause
    except ValueError as error:
        lines = str(task_error("score", 0, 7, error)).splitlines()
    cut = [line[:12] for line in lines if line.endswith("characters)")]
    assert cut == ["OSError: zzz", "ValueError: "]
    assert "The above exception was the direct cause of the following exception:" in lines
