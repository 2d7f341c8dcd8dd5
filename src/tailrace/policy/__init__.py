"""Pure rules that decide where a tuple goes, when it is sent, and whether a root is hedged. No clocks, threads or I/O.

``groupings`` pick the downstream task of a tuple, ``hedging`` the roots that are emitted once more, ``send_order`` the
queue that sends next, ``placement`` the node of each task. ``techniques`` has ``Tail``, the set of techniques that a
run is given. The runtime and the simulator drive the same objects.
"""

from tailrace.policy.groupings.api import ALL, HELD, Chooser, Grouping
from tailrace.policy.groupings.baselines.flink_scan import FlinkScan, flink_scan
from tailrace.policy.groupings.baselines.full_knowledge import FullKnowledge, full_knowledge
from tailrace.policy.groupings.baselines.storm_load_aware import StormLoadAware, storm_load_aware
from tailrace.policy.groupings.broadcast import Broadcast, broadcast
from tailrace.policy.groupings.feedback import FeedbackChooser, FeedbackGrouping, Receiver, has_feedback
from tailrace.policy.groupings.fields import Fields, fields
from tailrace.policy.groupings.latency_balanced import LatencyBalanced, latency_balanced
from tailrace.policy.groupings.latency_balanced_fast import LatencyBalancedFast
from tailrace.policy.groupings.least_work import LeastWork, least_work
from tailrace.policy.groupings.local import Local, local
from tailrace.policy.groupings.osg import Osg, osg
from tailrace.policy.groupings.partial_key import PartialKey, partial_key
from tailrace.policy.groupings.power_of_two import PowerOfTwo, power_of_two
from tailrace.policy.groupings.pull.grouping import Pull, pull
from tailrace.policy.groupings.shuffle import Shuffle, shuffle
from tailrace.policy.hashing import stable_hash
from tailrace.policy.hedging.adaptive import AdaptiveTimeout, adaptive_timeout
from tailrace.policy.hedging.api import Hedger, HedgeRule, ReplayRule
from tailrace.policy.hedging.du import DuTimeout, du_timeout
from tailrace.policy.hedging.fixed import FixedTimeout, fixed_timeout
from tailrace.policy.hedging.replicate import Replicate, replicate
from tailrace.policy.placement.api import Node, Placement, PlacementProblem, PlacementRule
from tailrace.policy.placement.coarse import CoarseGrained, coarse_grained
from tailrace.policy.placement.optimal import Optimal, optimal
from tailrace.policy.placement.problem import placement_problem
from tailrace.policy.placement.round_robin import RoundRobinPlacement, round_robin_placement
from tailrace.policy.send_order.api import NOTHING, Picker, SendScheduler, Waiting
from tailrace.policy.send_order.fifo import Fifo, fifo
from tailrace.policy.send_order.largest_backlog import LargestBacklogFirst, LargestWorkFirst, lbf, lbf_work
from tailrace.policy.send_order.round_robin import RoundRobin, round_robin
from tailrace.policy.techniques import QueueScope, Tail, Techniques

__all__ = [
    "ALL",
    "HELD",
    "NOTHING",
    "AdaptiveTimeout",
    "Broadcast",
    "Chooser",
    "CoarseGrained",
    "DuTimeout",
    "FeedbackChooser",
    "FeedbackGrouping",
    "Fields",
    "Fifo",
    "FixedTimeout",
    "FlinkScan",
    "FullKnowledge",
    "Grouping",
    "HedgeRule",
    "Hedger",
    "LargestBacklogFirst",
    "LargestWorkFirst",
    "LatencyBalanced",
    "LatencyBalancedFast",
    "LeastWork",
    "Local",
    "Node",
    "Optimal",
    "Osg",
    "PartialKey",
    "Picker",
    "Placement",
    "PlacementProblem",
    "PlacementRule",
    "PowerOfTwo",
    "Pull",
    "QueueScope",
    "Receiver",
    "ReplayRule",
    "Replicate",
    "RoundRobin",
    "RoundRobinPlacement",
    "SendScheduler",
    "Shuffle",
    "StormLoadAware",
    "Tail",
    "Techniques",
    "Waiting",
    "adaptive_timeout",
    "broadcast",
    "coarse_grained",
    "du_timeout",
    "fields",
    "fifo",
    "fixed_timeout",
    "flink_scan",
    "full_knowledge",
    "has_feedback",
    "latency_balanced",
    "lbf",
    "lbf_work",
    "least_work",
    "local",
    "optimal",
    "osg",
    "partial_key",
    "placement_problem",
    "power_of_two",
    "pull",
    "replicate",
    "round_robin",
    "round_robin_placement",
    "shuffle",
    "stable_hash",
    "storm_load_aware",
]
