"""What workers have seen of a split: by that a drain knows how far a source that died has got."""

from __future__ import annotations

from tailrace.core.bundles import FEEDBACK, new_bundle
from tailrace.core.protocol.messages import Applied, Members
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.protocol.worker import Reply, Worker


def test_the_furthest_root_of_each_split_counts_whatever_order_they_come_in() -> None:
    sightings = Sightings()
    sightings.came(
        [
            new_bundle(1, 0, 7, 11, None, ["a"]),
            new_bundle(2, 0, 3, 12, None, ["b"]),
            new_bundle(3, 4, 0, 13, None, ["c"]),
        ]
    )
    sightings.came([new_bundle(4, 0, 6, 14, None, ["d"])])
    assert sightings.so_far() == {0: 8, 4: 1}


def test_notes_between_bundles_are_no_roots() -> None:
    sightings = Sightings()
    sightings.came([(FEEDBACK, 0, 5, 99, ("report",)), (1, 5, 2, 11, None, ["a"], (0, 0, 1), None)])
    assert sightings.so_far() == {5: 3}


def test_what_a_sink_has_read_back_was_seen() -> None:
    sightings = Sightings()
    sightings.read_back([(0, 4, 1234), (0, 2, 99)])
    assert sightings.so_far() == {0: 5}


def test_a_worker_says_what_it_has_seen_with_each_membership() -> None:
    worker = Worker(0, 1)
    worker.sightings.came([new_bundle(1, 0, 7, 11, None, ["a"])])
    *_, reply = worker.handle(Members(3, {}, {0: 1}))
    assert reply == Reply(Applied(0, 1, 3, {0: 8}))
