"""Whatever a call raises, its retries are as many and as far apart as was declared."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace.calls.retries import MOST_REFUSALS, Retries

seconds = st.floats(0, 1e6)
errors = st.lists(st.one_of(st.just(ValueError("no")), st.just(OSError()), seconds.map(tr.RetryAfter)), max_size=60)


@given(errors, st.integers(0, 5), seconds, seconds, st.integers())
def test_attempts_and_waits_stay_within_what_was_declared(
    raised: list[Exception], retries: int, backoff_s: float, max_backoff_s: float, seed: int
) -> None:
    calls = tr.Calls(retries=retries, backoff_s=backoff_s, max_backoff_s=max_backoff_s, retry_on=OSError)
    decisions = Retries(calls, Random(seed))
    failed = refused = 0
    for error in raised:
        wait_s = decisions.wait_s(error)
        if isinstance(error, tr.RetryAfter):
            refused += 1
            assert (wait_s is None) == (refused > MOST_REFUSALS)
            assert wait_s is None or error.seconds <= wait_s <= error.seconds + max_backoff_s
        else:
            refused = 0
            failed += 1
            assert (wait_s is None) == (failed > retries or not isinstance(error, OSError))
            assert wait_s is None or 0 <= wait_s <= min(max_backoff_s, backoff_s * 2 ** (failed - 1))
        if wait_s is None:
            return


@given(st.integers(), st.integers(1, 6))
def test_waits_spread_over_the_whole_time(seed: int, retries: int) -> None:
    """Full jitter: of many calls that fail together, about a tenth comes back in each tenth of the time."""
    rng = Random(seed)
    calls = tr.Calls(retries=retries, backoff_s=1.0, max_backoff_s=64.0)
    tenths = [0] * 10
    for _ in range(1_000):
        decisions = Retries(calls, rng)
        for _ in range(retries):
            wait_s = decisions.wait_s(ValueError())
        assert wait_s is not None
        tenths[min(9, int(10 * wait_s / 2 ** (retries - 1)))] += 1
    assert min(tenths) > 40
