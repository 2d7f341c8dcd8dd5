"""A nemesis kills one worker again and again, each time after all splits have made progress. A run must survive that.

``max_deaths`` limits deaths without progress. A split that has been read to its end cannot make progress any more, and
must not make deaths look as if there were none.
"""

from __future__ import annotations

from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.core.protocol.coordinator import Coordinator, Phase
from tailrace.sim.faults.cluster import MAX_DEATHS, Cluster

MS = MILLISECOND_NS

SHARE = 0.15
"""Share of the seeds that have a nemesis."""


class Nemesis:
    """Kills one worker repeatedly, in some seeds."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        rng = Random(f"{seed} nemesis")
        self._cluster = cluster
        self._left = 2 * MAX_DEATHS if rng.random() < SHARE else 0
        self._worker = rng.randrange(cluster.plan.workers)
        self._at_kill: dict[int, int] = {}
        self.kills = 0
        if self._left:
            cluster.engine.after(rng.randrange(30, 100) * MS, self._look)

    def _look(self) -> None:
        cluster = self._cluster
        if cluster.coordinator.phase is Phase.RUNNING and self._all_got_further():
            self._kill(cluster.coordinator)
        if self._left and not cluster.finished:
            cluster.engine.after(5 * MS, self._look)

    def _kill(self, coordinator: Coordinator) -> None:
        process = self._cluster.by_epoch.get(coordinator.epoch_of(self._worker))
        if process is not None and process.alive:
            self._at_kill = {split: position.offset for split, position in coordinator.reached.items()}
            self._left -= 1
            self.kills += 1
            process.die("killed again")

    def _all_got_further(self) -> bool:
        """Whether at least one split has made progress, and all others have too or are at their end."""
        cluster = self._cluster
        reached = cluster.coordinator.reached
        if not any(position.offset > self._at_kill.get(split, -1) for split, position in reached.items()):
            return False
        for split, position in reached.items():
            source = cluster.plan.operators[cluster.plan.splits[split].source].operator.body
            over = position.offset >= source.roots and split in cluster.coordinator.quiet
            if position.offset <= self._at_kill.get(split, -1) and not over:
                return False
        return True
