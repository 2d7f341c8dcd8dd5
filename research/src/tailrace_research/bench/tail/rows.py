"""The rows of ``bench tail``, in their order. A row is there once the runtime has what it asks about."""

from __future__ import annotations

from tailrace_research.bench.tail.feedback import FEEDBACK
from tailrace_research.bench.tail.groupings import BALANCE, GROUPING
from tailrace_research.bench.tail.off import OFF
from tailrace_research.bench.tail.queues import SHARED_QUEUE
from tailrace_research.bench.tail.replay import REPLAY
from tailrace_research.bench.tail.run import Row
from tailrace_research.bench.tail.send.row import LBF

ROWS: tuple[Row, ...] = (GROUPING, BALANCE, REPLAY, SHARED_QUEUE, LBF, FEEDBACK, OFF)
