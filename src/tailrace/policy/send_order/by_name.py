"""Send schedulers by name, as on the command line.

A number means milliseconds: the interval of ``lbf``, the age floor of ``lbf_work``.
"""

from __future__ import annotations

from tailrace.policy.names import Named
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.send_order.fifo import fifo
from tailrace.policy.send_order.largest_backlog import lbf, lbf_work
from tailrace.policy.send_order.round_robin import round_robin

named_send: Named[SendScheduler] = Named(
    "send",
    "send scheduler",
    {"lbf": lbf, "lbf_work": lbf_work, "round_robin": round_robin, "fifo": fifo},
    {"lbf": lbf, "lbf_work": lbf_work},
    {"lbf": "50", "lbf_work": "250"},
)
