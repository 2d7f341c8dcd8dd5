"""Hedging rules by name. A number is one of milliseconds, or a fraction of the roots."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.policy.hedging.adaptive import adaptive_timeout
from tailrace.policy.hedging.api import HedgeRule
from tailrace.policy.hedging.du import du_timeout
from tailrace.policy.hedging.fixed import fixed_timeout
from tailrace.policy.hedging.replicate import replicate
from tailrace.policy.names import Named

HEDGE_RULES: dict[str, Callable[[], HedgeRule]] = {"adaptive_timeout": adaptive_timeout, "du_timeout": du_timeout}

named_hedge: Named[HedgeRule] = Named(
    "hedge",
    "hedging rule",
    HEDGE_RULES,
    {"fixed_timeout": fixed_timeout, "replicate": replicate},
    {"fixed_timeout": "30", "replicate": "0.2"},
)
