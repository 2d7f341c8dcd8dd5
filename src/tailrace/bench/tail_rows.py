"""The rows of ``bench tail``, in the order in which they are measured. A row is there once the runtime has what it asks
about."""

from __future__ import annotations

from tailrace.bench.tail import Row
from tailrace.bench.tail_groupings import BALANCE, GROUPING

ROWS: tuple[Row, ...] = (GROUPING, BALANCE)
