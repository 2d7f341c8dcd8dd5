"""Erlang C against what can be computed otherwise."""

from __future__ import annotations

from math import exp, factorial, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import OptionError
from tailrace.sim.load.erlang import erlang_c, mean_wait


def by_states(servers: int, offered: float) -> float:
    """From the probabilities of 0, 1, 2, … customers, as textbooks print it."""
    load = offered / servers
    queueing = offered**servers / factorial(servers) / (1 - load)
    return queueing / (sum(offered**k / factorial(k) for k in range(servers)) + queueing)


@given(st.integers(1, 40), st.floats(0.01, 0.99), st.floats(0.1, 1e4))
def test_it_is_the_textbooks_formula(servers: int, load: float, service_rate: float) -> None:
    found = erlang_c(servers, load * servers * service_rate, service_rate)
    assert found == pytest.approx(by_states(servers, load * servers), rel=1e-9)


@given(st.integers(1, 50), st.floats(0.1, 0.99))
def test_more_servers_at_the_same_utilisation_wait_less(servers: int, load: float) -> None:
    assert erlang_c(servers + 1, load * (servers + 1), 1.0) <= erlang_c(servers, load * servers, 1.0)
    assert mean_wait(servers + 1, load * (servers + 1), 1.0) < mean_wait(servers, load * servers, 1.0)


def test_known_values() -> None:
    assert erlang_c(1, 0.7, 1.0) == pytest.approx(0.7)
    assert mean_wait(1, 0.7, 1.0) == pytest.approx(0.7 / 0.3)
    assert erlang_c(2, 1.0, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(3, 0.0, 1.0) == 0.0
    assert erlang_c(200, 100.0, 1.0) < exp(-20), "no overflow"


def test_a_queue_that_cannot_keep_up() -> None:
    assert erlang_c(2, 2.0, 1.0) == 1.0
    assert mean_wait(2, 2.0, 1.0) == inf


@pytest.mark.parametrize("arguments", [(0, 1.0, 1.0), (1, -1.0, 1.0), (1, 1.0, 0.0)])
def test_what_is_no_queue(arguments: tuple[int, float, float]) -> None:
    with pytest.raises(OptionError, match="a queue needs servers, and rates that are not negative: servers="):
        erlang_c(*arguments)
