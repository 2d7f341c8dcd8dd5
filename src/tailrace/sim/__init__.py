"""Simulations on virtual time, driving the same objects as the runtime.

``simulate`` asks what a policy would do to a workload; ``tailrace.sim.faults`` asks whether anything is lost.
"""

from tailrace.policy.hedging.by_name import named_replay
from tailrace.sim.arrivals import Paced, Poisson, Recorded
from tailrace.sim.comparison import backlog_chart, latency_chart, render_comparison
from tailrace.sim.forest import Forest, grow
from tailrace.sim.model import Link, Model, Node, Order, Queue, Scope, Slowdown, Stage, Stalls
from tailrace.sim.modelfile import parse_model, read_model
from tailrace.sim.playback import Playback
from tailrace.sim.policies import POLICIES, named_policy
from tailrace.sim.report import Report, StageReport
from tailrace.sim.service import ByContent, Constant, Exponential, Lognormal, Trace, Uniform
from tailrace.sim.simulate import simulate
from tailrace.sim.trace import read_trace

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
    "backlog_chart",
    "grow",
    "latency_chart",
    "named_policy",
    "named_replay",
    "parse_model",
    "read_model",
    "read_trace",
    "render_comparison",
    "simulate",
]
