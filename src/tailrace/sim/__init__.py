"""Simulations in virtual time that drive the same objects as the runtime.

``load`` answers what a policy does to the latencies of a workload, ``traces`` does so for a recorded run, and
``faults`` checks that nothing is lost or doubled when processes and the network fail.
"""

from tailrace.policy.hedging.by_name import named_hedge
from tailrace.sim.load.comparison import backlog_chart, latency_chart, render_comparison
from tailrace.sim.load.forest import Forest, grow
from tailrace.sim.load.models.arrivals import Paced, Poisson, Recorded
from tailrace.sim.load.models.model import Link, Model, Node, Order, Queue, Scope, Slowdown, Stage, Stalls, Uplink
from tailrace.sim.load.models.model_file import parse_model, read_model
from tailrace.sim.load.models.service import ByContent, Constant, Exponential, Lognormal, Trace, Uniform
from tailrace.sim.load.policies import POLICIES, named_policy
from tailrace.sim.load.report import Report, StageReport
from tailrace.sim.load.simulate import simulate
from tailrace.sim.traces.playback import Playback
from tailrace.sim.traces.run_trace import read_trace

__all__ = [
    "POLICIES",
    "ByContent",
    "Constant",
    "Exponential",
    "Forest",
    "Link",
    "Lognormal",
    "Model",
    "Node",
    "Order",
    "Paced",
    "Playback",
    "Poisson",
    "Queue",
    "Recorded",
    "Report",
    "Scope",
    "Slowdown",
    "Stage",
    "StageReport",
    "Stalls",
    "Trace",
    "Uniform",
    "Uplink",
    "backlog_chart",
    "grow",
    "latency_chart",
    "named_hedge",
    "named_policy",
    "parse_model",
    "read_model",
    "read_trace",
    "render_comparison",
    "simulate",
]
