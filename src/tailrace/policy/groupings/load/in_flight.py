"""Tuples in flight: how many of its tuples a sender believes to be at each task.

These are the tuples sent, less those reported as executed, with a slow decay. The decay makes up for lost reports: a
task that died with tuples in its queue would otherwise look busy for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.clock import SECOND_NS
from tailrace.policy.groupings.feedback import FeedbackChooser, Message
from tailrace.policy.groupings.load.reports import Done

HALF_LIFE_NS = 30 * SECOND_NS
"""Much longer than a tuple should ever wait, so that a long queue is not mistaken for a lost report."""

STEPS = 16
"""Steps in which a half-life is taken. A power for every tuple would cost more than the choice."""


class InFlight(FeedbackChooser):
    """Base of choosers that compare tasks by tuples in flight."""

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
