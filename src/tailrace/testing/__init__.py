"""The public test kit: laws of policies and connectors as functions, a clock that tests control, a service to call."""

from tailrace.testing.clock import ManualClock
from tailrace.testing.connectors import check_sink, check_source
from tailrace.testing.grouping import check_grouping
from tailrace.testing.hedging import check_hedge_rule
from tailrace.testing.placement import check_placement
from tailrace.testing.scheduler import check_scheduler
from tailrace.testing.service import Behaviour, Service, serving

check_replay = check_hedge_rule
"""Another name of it."""

__all__ = [
    "Behaviour",
    "ManualClock",
    "Service",
    "check_grouping",
    "check_hedge_rule",
    "check_placement",
    "check_replay",
    "check_scheduler",
    "check_sink",
    "check_source",
    "serving",
]
