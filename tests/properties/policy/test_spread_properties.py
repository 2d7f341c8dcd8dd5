"""Workers are spread evenly over the hosts that have slots, whatever the slots, and after any losses."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.policy.placement.spread import next_host, spread

hosts = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 6), max_size=8)


def assert_even(slots: dict[str, int], homes: list[str]) -> None:
    there = Counter(homes)
    assert all(there[host] <= slots.get(host, 0) for host in there)
    for fewer, room in slots.items():
        assert there[fewer] == room or max(there.values(), default=0) <= there[fewer] + 1


@given(hosts, st.integers(0, 50))
def test_hosts_are_at_most_one_apart_unless_full(slots: dict[str, int], workers: int) -> None:
    homes = spread(workers, slots)
    assert len(homes) == min(workers, sum(slots.values()))
    assert_even(slots, homes)


@given(hosts, st.integers(1, 20), st.data())
def test_a_worker_that_is_lost_comes_back_to_where_it_is_missing(
    slots: dict[str, int], workers: int, data: st.DataObject
) -> None:
    homes = spread(workers, slots)
    if homes:
        homes.pop(data.draw(st.integers(0, len(homes) - 1)))
        again = next_host(slots, homes)
        assert again is not None
        assert_even(slots, [*homes, again])


@given(hosts, st.lists(st.sampled_from("abcdefgh")))
def test_wherever_workers_have_landed_the_next_goes_to_one_of_the_emptiest(
    slots: dict[str, int], homes: list[str]
) -> None:
    host, there = next_host(slots, homes), Counter(homes)
    room = [one for one in slots if there[one] < slots[one]]
    if host is None:
        assert not room
    else:
        assert host in room and there[host] == min(there[one] for one in room)
        assert host == next_host(dict(reversed(slots.items())), list(reversed(homes)))
