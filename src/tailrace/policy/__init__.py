"""Pure rules that decide where a tuple goes, when, and whether twice. No clocks, no threads, no I/O."""

from tailrace.policy.broadcast import Broadcast, broadcast
from tailrace.policy.fields import Fields, fields
from tailrace.policy.grouping import ALL, Chooser, Grouping
from tailrace.policy.hashing import stable_hash
from tailrace.policy.local import Local, local
from tailrace.policy.shuffle import Shuffle, shuffle

__all__ = [
    "ALL",
    "Broadcast",
    "Chooser",
    "Fields",
    "Grouping",
    "Local",
    "Shuffle",
    "broadcast",
    "fields",
    "local",
    "shuffle",
    "stable_hash",
]
