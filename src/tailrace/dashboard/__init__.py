"""Progress for people: a live table on a terminal, plain lines elsewhere, a summary at the end."""

from tailrace.dashboard.live import LiveTable
from tailrace.dashboard.plain import plain_line
from tailrace.dashboard.summary import render_summary
from tailrace.dashboard.watch import follow, watch

__all__ = ["LiveTable", "follow", "plain_line", "render_summary", "watch"]
