"""The rows of ``bench tail``, in their order. A row is there once the runtime has what it asks about."""

from __future__ import annotations

from tailrace.bench.tail import Row
from tailrace.bench.tail_feedback import FEEDBACK
from tailrace.bench.tail_groupings import BALANCE, GROUPING
from tailrace.bench.tail_off import OFF
from tailrace.bench.tail_queues import SHARED_QUEUE
from tailrace.bench.tail_replay import REPLAY
from tailrace.bench.tail_send import LBF

ROWS: tuple[Row, ...] = (GROUPING, BALANCE, REPLAY, SHARED_QUEUE, LBF, FEEDBACK, OFF)
