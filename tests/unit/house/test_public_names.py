"""What ``import tailrace`` offers: every public name is there, and baselines for comparison are not among them."""

from __future__ import annotations

import pytest

import tailrace
from tailrace import policy
from tailrace.sim import named_policy

GROUPINGS_TO_COMPARE_WITH = ["flink_scan", "full_knowledge", "storm_load_aware"]
BASELINES = [*GROUPINGS_TO_COMPARE_WITH, "du_timeout"]


@pytest.mark.parametrize("name", tailrace.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tailrace, name) is not None


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_a_policy_and_no_public_name(name: str) -> None:
    assert name in policy.__all__
    assert name not in tailrace.__all__
    assert not hasattr(tailrace, name)


@pytest.mark.parametrize("name", GROUPINGS_TO_COMPARE_WITH)
def test_the_simulator_takes_a_baseline_by_its_name(name: str) -> None:
    assert named_policy(name) == getattr(policy, name)()
