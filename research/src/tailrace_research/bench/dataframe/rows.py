"""The rows of ``bench dataframe``, in their order."""

from __future__ import annotations

from tailrace_research.bench.dataframe.even import EVEN
from tailrace_research.bench.dataframe.journal import JOURNAL
from tailrace_research.bench.dataframe.limit import LIMIT
from tailrace_research.bench.dataframe.run import Row
from tailrace_research.bench.dataframe.skewed import SKEWED
from tailrace_research.bench.dataframe.stream import STREAM
from tailrace_research.bench.dataframe.window import WINDOW

ROWS: tuple[Row, ...] = (WINDOW, EVEN, LIMIT, JOURNAL, SKEWED, STREAM)
