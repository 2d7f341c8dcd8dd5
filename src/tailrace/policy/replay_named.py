"""Replay rules by name. A number is one of milliseconds, or a fraction of the roots."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.policy.named import Named
from tailrace.policy.replay import ReplayRule
from tailrace.policy.replay_adaptive import adaptive_timeout
from tailrace.policy.replay_du import du_timeout
from tailrace.policy.replay_fixed import fixed_timeout
from tailrace.policy.replay_replicate import replicate

REPLAY_RULES: dict[str, Callable[[], ReplayRule]] = {"adaptive_timeout": adaptive_timeout, "du_timeout": du_timeout}

named_replay: Named[ReplayRule] = Named(
    "replay",
    "replay rule",
    REPLAY_RULES,
    {"fixed_timeout": fixed_timeout, "replicate": replicate},
    {"fixed_timeout": "30", "replicate": "0.2"},
)
