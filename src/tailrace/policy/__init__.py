"""Pure rules that decide where a tuple goes, when, and whether twice. No clocks, no threads, no I/O."""

from tailrace.policy.broadcast import Broadcast, broadcast
from tailrace.policy.feedback import FeedbackChooser, FeedbackGrouping, Receiver, has_feedback
from tailrace.policy.fields import Fields, fields
from tailrace.policy.flink_scan import FlinkScan, flink_scan
from tailrace.policy.grouping import ALL, HELD, Chooser, Grouping
from tailrace.policy.hashing import stable_hash
from tailrace.policy.latency_balanced import LatencyBalanced, latency_balanced
from tailrace.policy.latency_balanced_fast import LatencyBalancedFast
from tailrace.policy.least_work import LeastWork, least_work
from tailrace.policy.local import Local, local
from tailrace.policy.oracle import FullKnowledge, full_knowledge
from tailrace.policy.osg import Osg, osg
from tailrace.policy.partial_key import PartialKey, partial_key
from tailrace.policy.placement import Node, Placement, PlacementProblem, PlacementRule
from tailrace.policy.placement_coarse import CoarseGrained, coarse_grained
from tailrace.policy.placement_optimal import Optimal, optimal
from tailrace.policy.placement_problem import placement_problem
from tailrace.policy.placement_round_robin import RoundRobinPlacement, round_robin_placement
from tailrace.policy.power_of_two import PowerOfTwo, power_of_two
from tailrace.policy.pull import Pull, pull
from tailrace.policy.replay import Replayer, ReplayRule
from tailrace.policy.replay_adaptive import AdaptiveTimeout, adaptive_timeout
from tailrace.policy.replay_du import DuTimeout, du_timeout
from tailrace.policy.replay_fixed import FixedTimeout, fixed_timeout
from tailrace.policy.replay_replicate import Replicate, replicate
from tailrace.policy.send import NOTHING, Picker, SendScheduler, Waiting
from tailrace.policy.send_fifo import Fifo, fifo
from tailrace.policy.send_lbf import LargestBacklogFirst, LargestWorkFirst, lbf, lbf_work
from tailrace.policy.send_round_robin import RoundRobin, round_robin
from tailrace.policy.shuffle import Shuffle, shuffle
from tailrace.policy.storm_load_aware import StormLoadAware, storm_load_aware
from tailrace.policy.tail import QueueScope, Tail, Techniques

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
    "Replayer",
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
