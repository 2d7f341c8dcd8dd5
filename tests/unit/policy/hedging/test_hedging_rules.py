"""Each replay rule keeps the law and does what its name says; ``check_hedge_rule`` finds those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from random import Random

import pytest

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError
from tailrace.policy import HedgeRule, adaptive_timeout, du_timeout, fixed_timeout, replicate
from tailrace.policy.hedging.adaptive import algorithm_1
from tailrace.policy.hedging.api import Load
from tailrace.policy.hedging.budget import Limits
from tailrace.policy.hedging.latencies import FEWEST, UNSEEN, Latencies
from tailrace.policy.hedging.timeouts import TimedHedger
from tailrace.testing import check_hedge_rule

ALL: list[HedgeRule] = [
    adaptive_timeout(),
    adaptive_timeout(budget=0.01, gate=0.5),
    adaptive_timeout(budget=None, gate=None),
    fixed_timeout(5),
    fixed_timeout(5, budget=0.02),
    fixed_timeout(5, gate=0.8),
    replicate(0.2),
    replicate(1.0, budget=0.05, gate=0.8),
    du_timeout(),
]


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_the_law_of_replay_rules(rule: HedgeRule) -> None:
    check_hedge_rule(rule, roots=2_500, seeds=(0,))


# -- rules that break it


@dataclass
class Broken:
    """Fixed timeouts with one thing changed."""

    change: Callable[[TimedHedger], None]
    limits: Limits = field(default_factory=lambda: Limits(None, None))
    budget: float | None = None
    name: str = "broken"
    cancels: bool = True

    def bind(self, rng: Random) -> TimedHedger:
        hedger = TimedHedger(5 * MS, self.limits)
        self.change(hedger)
        return hedger


def due(change: Callable[[Sequence[int], int], Sequence[int]]) -> Callable[[TimedHedger], None]:
    def changed(hedger: TimedHedger) -> None:
        before = hedger.due
        hedger.due = lambda now_ns: change(before(now_ns), now_ns)  # type: ignore[method-assign]

    return changed


def early(hedger: TimedHedger) -> None:
    hedger.wake_ns = lambda: 10**12  # type: ignore[method-assign]


def never_passes(hedger: TimedHedger) -> None:
    wake_ns = hedger.wake_ns
    hedger.wake_ns = lambda: None if wake_ns() is None else 3 * MS + 7  # type: ignore[method-assign]


shared: list[int] = []


def shares(hedger: TimedHedger) -> None:
    emitted = hedger.emitted

    def count(root: int, now_ns: int) -> None:
        shared.append(root)
        hedger.timeout_ns = 5 * MS + len(shared)
        emitted(root, now_ns)

    hedger.emitted = count  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("rule", "law"),
    [
        (Broken(due(lambda roots, now_ns: [*roots, 10**9])), "only roots that were emitted are due"),
        (Broken(due(lambda roots, now_ns: [0] if now_ns > 90 * MS else [])), "a root that is complete is not due"),
        (Broken(due(lambda roots, now_ns: [*roots] * 3)), "a root is due 2 times in its life at most"),
        (Broken(early), "nothing is due before the moment that wake_ns names"),
        (Broken(never_passes), "a moment that wake_ns names passes"),
        (Broken(lambda _: None, Limits(0.05, None), budget=0.01), "hedges cost no more than the budget"),
        (Broken(shares), "equal seeds and equal traffic give equal hedges"),
    ],
)
def test_the_kit_finds_rules_that_break_the_law(rule: Broken, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.testing.hedging.cloudpickle.loads", lambda _: rule)  # values are not the matter here
    with pytest.raises(AssertionError, match=f"{law}: rule=broken"):
        check_hedge_rule(rule, roots=2_500)


def test_a_rule_that_hedges_by_hash_is_found() -> None:
    """Another process has another order of hashes."""

    @dataclass(frozen=True)
    class ByHash:
        name: str = "by_hash"
        cancels: bool = True
        budget: float | None = None

        def bind(self, rng: Random) -> TimedHedger:
            return TimedHedger(MS + hash("x") % (40 * MS), Limits(None, None))

    with pytest.raises(AssertionError, match="equal hedges in any process: rule=by_hash"):
        check_hedge_rule(ByHash(), seeds=(0,))


# -- what each rule says


def test_algorithm_1_is_the_papers() -> None:
    assert algorithm_1(10, 11, 21, 100) == 10, "p99 is more than twice p90"
    assert algorithm_1(10, 11, 20, 23) == 11, "p99.9 is more than twice p95"
    assert algorithm_1(10, 11, 20, 22) == 22


def lucky(hedger: TimedHedger) -> TimedHedger:
    """Most of its hedges have won, and those roots' share of the budget is spent."""
    budget = hedger.budget
    for _ in range(30):
        budget.completed(hedges=1, won=True)
    while budget.left() is not None and budget.affords():
        budget.spend()
    return hedger


def test_a_fixed_timeout_is_exact_and_counts_from_the_first_emission() -> None:
    hedger = fixed_timeout(5).bind(Random(0))
    hedger.emitted(7, 100)
    assert hedger.wake_ns() == 100 + 5 * MS + 1
    assert not hedger.due(100 + 5 * MS)
    assert hedger.due(100 + 5 * MS + 1) == [7]
    assert hedger.wake_ns() is None
    hedger.emitted(7, 200 * MS)  # after a loss
    assert not hedger.due(300 * MS), "a root is hedged once, as long as nobody knows who is first"


def test_a_hedge_that_is_late_itself_is_hedged_once_more_where_most_are_first() -> None:
    hedger = lucky(fixed_timeout(5).bind(Random(0)))
    hedger.emitted(7, 0)
    hedger.emitted(8, 8 * MS)
    assert hedger.due(6 * MS) == [7]
    assert hedger.wake_ns() == 11 * MS + 1, "a timeout behind the hedge, which is sooner than the other root's"
    assert not hedger.due(11 * MS)
    assert hedger.due(11 * MS + 1) == [7]
    assert hedger.due(20 * MS) == [8]
    assert hedger.due(90 * MS) == [8], "and nobody gets a third"
    assert hedger.wake_ns() is None
    hedger.completed(7, 95 * MS, hedge=True)
    hedger.completed(8, 99 * MS, hedge=False)


def test_a_hedge_that_a_loss_has_taken_is_late_from_the_next_emission_on() -> None:
    hedger = lucky(fixed_timeout(5).bind(Random(0)))
    hedger.emitted(7, 0)
    assert hedger.due(6 * MS) == [7]
    hedger.emitted(7, 9 * MS)
    assert hedger.wake_ns() == 14 * MS + 1 and hedger.due(14 * MS + 1) == [7]
    hedger.emitted(7, 20 * MS)
    assert hedger.wake_ns() is None and not hedger.due(90 * MS)


def test_late_roots_without_a_hedge_come_first() -> None:
    hedger = lucky(fixed_timeout(5, budget=0.1).bind(Random(0)))
    for root in range(11):
        hedger.emitted(root, 0)
        hedger.completed(root, MS, False)
    hedger.emitted(20, 10 * MS)
    assert hedger.due(16 * MS) == [20]
    hedger.emitted(21, 20 * MS)
    assert not hedger.due(30 * MS), "both are late, and there is no money"
    for root in range(30, 41):
        hedger.emitted(root, 30 * MS)
        hedger.completed(root, 30 * MS, False)
    assert hedger.due(31 * MS) == [21]


def run_period(hedger: TimedHedger, latencies_ms: Sequence[float], hedge: bool = False, from_ns: int = 0) -> None:
    """A second in which roots take so long, one after the other."""
    hedger.due(from_ns)
    for root, latency in enumerate(latencies_ms):
        hedger.emitted(root, from_ns)
        hedger.completed(root, from_ns + round(latency * MS), hedge)
    hedger.due(from_ns + SECOND_NS)


def test_without_a_budget_the_timeout_is_algorithm_1s() -> None:
    hedger = adaptive_timeout(budget=None, gate=None).bind(Random(0))
    run_period(hedger, [1.0] * 950 + [10.0] * 50)
    assert hedger.timeout_ns == MS
    hedger = adaptive_timeout(budget=None, gate=None).bind(Random(0))
    run_period(hedger, [float(n) for n in range(1, 1001)])
    assert hedger.timeout_ns == 999 * MS


def test_with_a_budget_the_timeout_is_what_the_budget_can_pay_for() -> None:
    hedger = adaptive_timeout(budget=0.03).bind(Random(0))
    run_period(hedger, [float(n) for n in range(1, 1001)])
    assert hedger.timeout_ns == 970 * MS, "a hedge is taken to cost a root's work"
    hedger = adaptive_timeout(budget=0.5).bind(Random(0))
    run_period(hedger, [float(n) for n in range(1, 1001)])
    assert hedger.timeout_ns == 900 * MS, "nine in ten, if that is sooner than twice the median"
    hedger = adaptive_timeout(budget=0.5).bind(Random(0))
    run_period(hedger, [2.0] * 850 + [50.0 + n for n in range(150)])
    assert hedger.timeout_ns == 4 * MS, "more than a tenth waits behind something: p90 says for how long"
    hedger = adaptive_timeout(budget=0.05).bind(Random(0))
    run_period(hedger, [2.0] * 510 + [50.0 + n for n in range(90)])
    assert hedger.timeout_ns == 109 * MS, "the budget pays for one in twenty"


@pytest.mark.parametrize("won", [True, False])
def test_a_budget_that_is_left_over_is_tried_on_twice_as_many_where_hedges_win(won: bool) -> None:
    hedger = adaptive_timeout(budget=0.05).bind(Random(0))
    late = [2.0] * 850 + [50.0 + n for n in range(150)]
    run_period(hedger, late)
    assert hedger.timeout_ns == 149 * MS, "it is not known yet whether they win"
    for _ in range(30):
        hedger.budget.completed(hedges=1, won=won)
    run_period(hedger, late, from_ns=SECOND_NS)
    assert (hedger.timeout_ns < 110 * MS) == won
    for _ in range(50):
        hedger.budget.spend()
    run_period(hedger, late, from_ns=2 * SECOND_NS)
    assert hedger.timeout_ns > 140 * MS, "it was not left over"


def test_nothing_is_hedged_before_there_are_latencies_work_and_room() -> None:
    hedger = adaptive_timeout().bind(Random(0))
    hedger.emitted(10_000, 0)
    run_period(hedger, [1.0] * 1_000)
    assert not hedger.due(2 * SECOND_NS), "nobody has said how busy tasks are"
    hedger.observed(Load(0.3, 0, 0, 0, 0), 2 * SECOND_NS)
    assert hedger.due(2 * SECOND_NS) == [10_000]


def test_replication_draws_its_share_and_asks_the_budget() -> None:
    hedger = replicate(0.2).bind(Random(1))
    copies = 0
    for root in range(5_000):
        hedger.emitted(root, root)
        copies += len(hedger.due(root))
        assert not hedger.due(root)
    assert copies == pytest.approx(1_000, abs=100)
    poor = replicate(1.0, budget=0.1).bind(Random(1))
    poor.emitted(0, 0)
    assert not poor.due(0), "nothing has been earned yet"


def test_the_papers_timers_fire_between_one_timeout_and_two() -> None:
    hedger = du_timeout().bind(Random(0))
    hedger.due(0)
    for root in range(1_000):
        hedger.emitted(root, root * MS)
        hedger.completed(root, (root + 10) * MS, False)
    hedger.due(SECOND_NS + 10 * MS)  # p90, p95, p99 and p99.9 are all 10 ms; the buckets turn
    ages = []
    now_ns, root = SECOND_NS + 11 * MS, 1_000
    while root < 1_200:
        hedger.emitted(root, now_ns)
        born = {root: now_ns}
        while not (found := hedger.due(now_ns)):
            now_ns = hedger.wake_ns() or 0
        assert found == [root], found
        ages.append(now_ns - born[root])
        now_ns += 10 * MS
        hedger.completed(root, now_ns, True)
        root += 1
        now_ns += (root * 7 % 10) * MS
    assert min(ages) >= 10 * MS
    assert max(ages) <= 20 * MS + MS
    assert max(ages) - min(ages) >= 8 * MS


def test_the_papers_estimate_feeds_on_replays() -> None:
    """A root that took 500 ms counts as 1 ms, because it was complete 1 ms after its replay."""
    hedger = du_timeout().bind(Random(0))
    hedger.due(0)
    for root in range(100):
        hedger.emitted(root, 0)
        hedger.completed(root, 10 * MS, False)
    hedger.due(SECOND_NS)
    hedger.emitted(1_000, SECOND_NS + MS)
    assert not hedger.due(SECOND_NS + 10 * MS)
    assert hedger.due(SECOND_NS + 501 * MS) == [1_000]
    hedger.completed(1_000, SECOND_NS + 502 * MS, True)
    hedger.due(2 * SECOND_NS)
    assert hedger.wake_ns() is None
    hedger.emitted(1_001, 2 * SECOND_NS)
    assert hedger.wake_ns() == 2 * SECOND_NS + MS


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: fixed_timeout(0), "a time above zero, and less than a day: ms=0: did you mean replicate"),
        (lambda: fixed_timeout(inf), "a time above zero, and less than a day: ms=inf: is it a number of milliseconds?"),
        (lambda: fixed_timeout(1e-9), "and less than a day: ms=1e-09: is it a number of milliseconds?"),
        (lambda: fixed_timeout(1e300), "and less than a day: ms=1e+300"),
        (lambda: fixed_timeout("30"), "and less than a day: ms='30': is it a number of milliseconds?"),  # type: ignore[arg-type]
        (lambda: replicate(nan), "a fraction of the roots is 0 to 1: fraction=nan: is it a number?"),
        (lambda: replicate(True), "a fraction of the roots is 0 to 1: fraction=True: is it a number?"),
        (lambda: adaptive_timeout(budget="5%"), "above 0 and up to 1, or None: budget='5%'"),  # type: ignore[arg-type]
        (lambda: fixed_timeout(30, gate=True), "a gate is a utilisation, above 0 and up to 1, or None: gate=True"),
        (lambda: replicate(20), "a fraction of the roots is 0 to 1: fraction=20: did you mean 0.2?"),
        (lambda: adaptive_timeout(budget=5), "a budget is a share of the work, above 0 and up to 1, or None: budget=5"),
        (lambda: adaptive_timeout(gate=0), "a gate is a utilisation, above 0 and up to 1, or None: gate=0"),
    ],
)
def test_bad_options(make: Callable[[], object], text: str) -> None:
    with pytest.raises(OptionError) as error:
        make()
    assert text in str(error.value)


# -- censored latencies


def test_quantiles_of_plain_samples() -> None:
    latencies = Latencies()
    for latency in range(1, 101):
        latencies.add(latency, False)
    assert latencies.end_period([0.5, 0.9, 0.99, 1.0]) == [50, 90, 99, 100]


def test_censored_samples_raise_what_is_slower() -> None:
    """Of 100 roots 10 are hedged at 5: half of the rest take longer than any of them is known to."""
    latencies = Latencies()
    for _ in range(80):
        latencies.add(1, False)
    for _ in range(10):
        latencies.add(5, True)
    for latency in range(10, 20):
        latencies.add(latency, False)
    assert latencies.end_period([0.8, 0.9, 0.98]) == [1, 14, 18]


def test_what_nobody_has_seen_is_not_made_up() -> None:
    latencies = Latencies()
    for _ in range(90):
        latencies.add(1, False)
    for _ in range(10):
        latencies.add(2, True)
    assert latencies.end_period([0.9, 0.91]) == [1, UNSEEN]
    few = Latencies()
    for _ in range(FEWEST - 1):
        few.add(1, False)
    assert few.end_period([0.5]) == [UNSEEN]


def test_a_window_goes_back_as_far_as_it_must() -> None:
    latencies = Latencies()
    for period in range(30):
        for _ in range(100):
            latencies.add(period, False)
        newest = latencies.end_period([0.001])
    assert newest == [20], "ten periods of a hundred"
    for _ in range(2_000):
        latencies.add(99, False)
    assert latencies.end_period([0.001]) == [99]
