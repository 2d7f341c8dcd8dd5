"""Send schedulers by name. A number is one of milliseconds: the interval, or the age floor."""

from __future__ import annotations

from tailrace.policy.named import Named
from tailrace.policy.send import SendScheduler
from tailrace.policy.send_fifo import fifo
from tailrace.policy.send_lbf import lbf, lbf_work
from tailrace.policy.send_round_robin import round_robin

named_send: Named[SendScheduler] = Named(
    "send",
    "send scheduler",
    {"lbf": lbf, "lbf_work": lbf_work, "round_robin": round_robin, "fifo": fifo},
    {"lbf": lbf, "lbf_work": lbf_work},
    {"lbf": "50", "lbf_work": "250"},
)
