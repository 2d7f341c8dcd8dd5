"""The words of a failed call, in a column of errors and in the error that ends a query."""

from __future__ import annotations

import pytest

from tailrace.errors import LONGEST_MESSAGE
from tailrace.spark.calls.failures import failed, in_words


class Wordless(Exception):
    """Stands for an exception whose words are broken."""

    def __str__(self) -> str:
        raise AttributeError("response")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("no such\n  user"), "OSError: no such user"),
        (TimeoutError(), "TimeoutError"),
        (Wordless(), "Wordless"),
        (ValueError("x" * 5_000_000), "ValueError: " + "x" * LONGEST_MESSAGE + "… (5000000 characters)"),
    ],
    ids=["lines", "empty", "broken", "long"],
)
def test_an_error_is_one_line_that_fits_a_table(error: Exception, words: str) -> None:
    assert in_words(error) == words
    assert str(failed("score", 3, ["row"], [7], error, 2)) == (
        f"call failed: function=score row=3 row=7 attempts=2: {words}: "
        "did you mean on_error='column' or 'skip', or retries=…?"
    )
