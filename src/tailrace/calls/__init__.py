"""How a function is called that is slow, limited or paid for: what a user declares, and the decisions that are pure."""

from tailrace.calls.limit import Limit, limit
from tailrace.calls.options import CallErrorAction, Calls
from tailrace.calls.retry_after import RetryAfter

__all__ = ["CallErrorAction", "Calls", "Limit", "RetryAfter", "limit"]
