"""Replay rules by name, for the command line and for configurations."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.errors import OptionError
from tailrace.policy.replay import ReplayRule
from tailrace.policy.replay_adaptive import adaptive_timeout
from tailrace.policy.replay_du import du_timeout
from tailrace.policy.replay_fixed import fixed_timeout
from tailrace.policy.replay_replicate import replicate

REPLAY_RULES: dict[str, Callable[[], ReplayRule]] = {"adaptive_timeout": adaptive_timeout, "du_timeout": du_timeout}
REPLAY_RULES_OF: dict[str, Callable[[float], ReplayRule]] = {"fixed_timeout": fixed_timeout, "replicate": replicate}
"""Rules that need a number: milliseconds, or a fraction of the roots."""


def named_replay(text: str) -> ReplayRule:
    """``adaptive_timeout``, ``du_timeout``, ``fixed_timeout=20`` or ``replicate=0.2``."""
    name, given, number = text.partition("=")
    if name in REPLAY_RULES and not given:
        return REPLAY_RULES[name]()
    if name in REPLAY_RULES_OF:
        return REPLAY_RULES_OF[name](_number(text, number))
    known = ", ".join([*REPLAY_RULES, *(f"{name}=NUMBER" for name in REPLAY_RULES_OF)])
    raise OptionError(f"unknown replay rule: replay={text}: did you mean one of {known}?")


def _number(text: str, number: str) -> float:
    try:
        return float(number)
    except ValueError:
        raise OptionError(f"a replay rule needs a number: replay={text}: did you mean replicate=0.2?") from None
