"""OSG's simulations (Middleware 2016, Sec. 5.2): which cells each figure needs. ``simulations`` runs them.

A simulation of 100,000 tuples takes from a quarter of a second to one and a half. So streams go where they tell most:
the point that all sweeps share gets four times as many as others, and policies whose gain is much the same on every
stream half as many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from tailrace_research.reproduce.osg.best import figure_best
from tailrace_research.reproduce.osg.change import figure_11
from tailrace_research.reproduce.osg.figures import figure_late, sweep_figure
from tailrace_research.reproduce.osg.simulations import (
    CHANGED_TUPLES,
    MEASURES,
    ORACLES,
    PARAMETERS,
    SETTING,
    Setting,
    figure_settings,
    run_cell,
)
from tailrace_research.reproduce.study import Cell, Cells, Study

PAPER = ("shuffle", "osg", "full_knowledge")
ABLATIONS = ("osg_pooled", "osg_idle_counts")
ABLATED_LOADS = (1.0, 1.05, 1.15)
"""Over-provisioning at which the paper's text says what OSG gains."""

MENDED = ("osg_published", "osg_mended")
STEADY = ("pull", "least_work")
"""Their gains differ little from stream to stream."""

MORE = 4
"""Times the streams of any other point, where all sweeps meet."""

LATE = 0.003
"""Chosen by looking at what the paper's curve of Full Knowledge needs: 10 us at its 0.1 to 6.4 ms."""

LATE_TASKS = (2, 5, 8, 11, 12, 15, 20)

BEST_LOADS = (1.0, 1.05, 1.15)
BEST_ALPHAS = (0.0, 1.0, 2.0)
BEST_SENDERS = (1, 4)
LINK_US = 100.0


def _cell(setting: Setting, policy: str, stream: int, seed: int) -> Cell:
    """Parameters that a policy ignores have their default values, so that no simulation runs under two names."""
    if not policy.startswith("osg"):
        setting, seed = replace(setting, epsilon=Setting.epsilon), 0
    if policy in ORACLES:
        setting = replace(setting, senders=1)
    values: list[Any] = [getattr(setting, name) for name in SETTING]
    return dict(zip(PARAMETERS, (*values, policy, stream, seed), strict=True))


def _cells(points: Iterable[tuple[Setting, str]], streams: int, seeds: int) -> list[Cell]:
    found: dict[tuple[Any, ...], Cell] = {}
    for setting, policy in points:
        for stream, seed in product(range(_streams(setting, policy, streams)), range(seeds)):
            cell = _cell(setting, policy, stream, seed)
            found.setdefault(tuple(cell.values()), cell)
    return list(found.values())


def _streams(setting: Setting, policy: str, streams: int) -> int:
    if policy in STEADY:
        return half(streams)
    return MORE * streams if setting == Setting() else streams


def half(streams: int) -> int:
    return (streams + 1) // 2


def sweep(number: int, added: Iterable[str]) -> Cells:
    """A figure's points, with the paper's policies and these."""

    def cells(streams: int, seeds: int) -> list[Cell]:
        settings = figure_settings(number).values()
        return _cells(product(settings, (*PAPER, *added)), streams, seeds)

    return cells


def load_cells(streams: int, seeds: int) -> list[Cell]:
    """Figure 6, with each half of what mends OSG by itself."""
    ablated = [Setting(over_provisioning=load) for load in ABLATED_LOADS]
    alone = _cells(product(ablated, ABLATIONS), streams, seeds)
    return [*sweep(6, (*MENDED, *STEADY))(streams, seeds), *alone]


def late_cells(streams: int, seeds: int) -> list[Cell]:
    """Figure 9 where every wait, of the source and of tasks, is ``LATE`` times the mean execution time too long.

    The source waits once a tuple and each of k tasks once in k tuples, so there is more time to spare than was meant.
    """
    settings = [Setting(tasks=tasks, over_provisioning=1 + (tasks - 1) * LATE) for tasks in LATE_TASKS]
    return _cells(product(settings, (*PAPER, *MENDED)), streams, seeds)


def change_cells(streams: int, seeds: int) -> list[Cell]:
    compared = ("shuffle", "osg", *MENDED, *STEADY)
    settings = [Setting(over_provisioning=load, tuples=CHANGED_TUPLES, changes=1) for load in (1.0, 1.05)]
    return _cells(product(settings, compared), streams, seeds)


def best_cells(streams: int, seeds: int) -> list[Cell]:
    """Half of the streams: what is compared is paired stream by stream, and differs little."""
    points = [Setting(alpha, load) for load, alpha in product(BEST_LOADS, BEST_ALPHAS)]
    compared = ("full_knowledge", "osg_mended", *STEADY)
    found = [
        (replace(point, senders=senders), policy) for point, senders, policy in product(points, BEST_SENDERS, compared)
    ]
    far = [
        (replace(point, senders=senders, latency_us=LINK_US), policy)
        for point, senders, policy in product(points, BEST_SENDERS, ("full_knowledge", "pull"))
    ]
    return [cell for cell in _cells([*found, *far], streams, seeds) if cell["stream"] < half(streams)]


OSG = Study(
    name="osg",
    parameters=PARAMETERS,
    measures=MEASURES,
    run_cell=run_cell,
    figures=(
        *(
            sweep_figure(number, cells)
            for number, cells in (
                (4, sweep(4, (*MENDED, *STEADY))),
                (5, sweep(5, (*MENDED, *STEADY))),
                (6, load_cells),
                (7, sweep(7, (*MENDED, "pull"))),
                (8, sweep(8, (*MENDED, "pull"))),
                (9, sweep(9, (*MENDED, "pull"))),
                (10, sweep(10, MENDED)),
            )
        ),
        figure_11(change_cells),
        figure_late(late_cells),
        figure_best(best_cells),
    ),
    modules=("tailrace_research.reproduce.osg.simulations",),
)
