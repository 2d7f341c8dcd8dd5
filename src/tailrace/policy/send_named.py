"""Send schedulers by name, for configurations."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.errors import OptionError
from tailrace.policy.send import SendScheduler
from tailrace.policy.send_fifo import fifo
from tailrace.policy.send_lbf import lbf, lbf_work
from tailrace.policy.send_round_robin import round_robin

SEND_SCHEDULERS: dict[str, Callable[[], SendScheduler]] = {"lbf": lbf, "round_robin": round_robin, "fifo": fifo}
SEND_SCHEDULERS_OF: dict[str, Callable[[float], SendScheduler]] = {"lbf": lbf, "lbf_work": lbf_work}
"""Those that take a number of milliseconds: the interval, or the age floor."""


def named_send(text: str) -> SendScheduler:
    """``lbf``, ``lbf=50``, ``lbf_work=250``, ``round_robin`` or ``fifo``."""
    name, given, number = text.partition("=")
    if name in SEND_SCHEDULERS and not given:
        return SEND_SCHEDULERS[name]()
    if name in SEND_SCHEDULERS_OF and given:
        return SEND_SCHEDULERS_OF[name](_number(text, number))
    known = ", ".join([*SEND_SCHEDULERS, *(f"{name}=MS" for name in SEND_SCHEDULERS_OF)])
    raise OptionError(f"unknown send scheduler: send={text}: did you mean one of {known}?")


def _number(text: str, number: str) -> float:
    try:
        return float(number)
    except ValueError:
        raise OptionError(f"not a number of milliseconds: send={text}: did you mean lbf_work=250?") from None
