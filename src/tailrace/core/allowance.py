"""What feedback may cost a worker: a share of one core, which its tasks spend together.

Each says afterwards what it has spent. Whoever wants to look up waits until all that was spent has been earned; what it
has to tell is told together then, for less. A worker that spends little saves a little, so that feedback is at once
wherever tuples are few or come in bursts.
"""

from __future__ import annotations

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.core.bucket import Bucket

SHARE = 0.015
"""Of a core. Somewhat below the 2% that are promised: what senders hear is spent, but does not wait."""

HEARERS = 3
"""Workers whose reports a sender can hear within its own share. Where there are more, each spends less."""

SAVED_NS = 100 * MILLISECOND_NS
"""So long a worker saves, at most."""


class Allowance(Bucket):
    """Nanoseconds are spent, and told afterwards.

    Threads may spend at the same moment. One of the sums is lost then, which does no harm.
    """

    def __init__(self, workers: int = 1) -> None:
        super().__init__(int(SHARE * min(1.0, HEARERS / workers) * SECOND_NS), SAVED_NS)
