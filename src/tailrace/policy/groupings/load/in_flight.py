"""How many of its tuples a sender believes to be at each task: sent, less those reported as executed, less with time.

The decay forgives lost reports. Without it a task that died with tuples in its queue would look busy for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.clock import SECOND_NS
from tailrace.policy.groupings.feedback import FeedbackChooser, Message
from tailrace.policy.groupings.load.reports import Done

HALF_LIFE_NS = 30 * SECOND_NS
"""Much longer than a tuple should ever wait, so that a long queue is not taken for a lost report."""

STEPS = 16
"""A half-life is taken in so many steps: a power of two for every tuple would cost more than the choice."""


class InFlight(FeedbackChooser):
    """The base of sending halves that compare tasks by tuples in flight."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self.in_flight = [0.0] * tasks
        self._decayed_ns = 0

    def tick(self, now_ns: int) -> None:
        steps = (now_ns - self._decayed_ns) * STEPS // HALF_LIFE_NS
        if steps > 0:
            kept = 0.5 ** (steps / STEPS)
            self.in_flight = [count * kept for count in self.in_flight]
            self._decayed_ns = now_ns

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        assert isinstance(message, Done), message
        self.in_flight[task] = max(0.0, self.in_flight[task] - message.tuples)
        return ()
