"""Formulas for M/M/c queues: Poisson arrivals, exponential durations, one queue in front of several servers.

Du's thesis prints the formula with an exponent missing; this is the one by Erlang.
"""

from __future__ import annotations

from tailrace.errors import OptionError


def erlang_c(servers: int, arrival_rate: float, service_rate: float) -> float:
    """The probability that an arrival has to wait.

    Law: it is the utilisation for one server, falls with more of them at the same utilisation, and is 1 from a
    utilisation of 1 on.
    """
    if servers < 1 or arrival_rate < 0 or service_rate <= 0:
        raise OptionError(
            f"a queue needs servers, and rates that are not negative: servers={servers} "
            f"arrival_rate={arrival_rate} service_rate={service_rate}"
        )
    offered = arrival_rate / service_rate
    if offered >= servers:
        return 1.0
    blocked = 1.0  # Erlang B by recurrence, because powers and factorials would overflow
    for server in range(1, servers + 1):
        blocked = offered * blocked / (server + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def mean_wait(servers: int, arrival_rate: float, service_rate: float) -> float:
    """The mean wait of all arrivals, in the unit of time of the rates. Infinite if the servers cannot keep up."""
    waiting = erlang_c(servers, arrival_rate, service_rate)
    spare = servers * service_rate - arrival_rate
    return waiting / spare if spare > 0 else float("inf")
