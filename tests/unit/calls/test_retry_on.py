"""Which errors are worth another attempt is a type, several, or a function."""

from __future__ import annotations

from random import Random

import pytest

import tailrace as tr
from tailrace.calls.options import RetryOn
from tailrace.calls.retries import Retries


@pytest.mark.parametrize(
    ("retry_on", "error", "again"),
    [
        (Exception, ValueError(), True),
        (Exception, KeyboardInterrupt(), False),
        (OSError, TimeoutError(), True),
        ((OSError, KeyError), KeyError(), True),
        ((OSError, KeyError), ValueError(), False),
        (lambda error: "503" in str(error), RuntimeError("status 503"), True),
        (lambda error: "503" in str(error), RuntimeError("status 404"), False),
        (OSError, tr.RetryAfter(1), True),
    ],
)
def test_retry_on(retry_on: RetryOn, error: BaseException, again: bool) -> None:
    decisions = Retries(tr.Calls(retries=1, retry_on=retry_on), Random(1))
    assert (decisions.wait_s(error) is not None) == again


def test_a_refusal_uses_up_no_retry() -> None:
    decisions = Retries(tr.Calls(retries=1), Random(1))
    assert decisions.wait_s(tr.RetryAfter(2)) is not None
    assert decisions.wait_s(ValueError()) is not None
    assert decisions.wait_s(tr.RetryAfter(2)) is not None
    assert decisions.wait_s(ValueError()) is None
