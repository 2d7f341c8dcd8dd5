"""What `tailrace bench ipc` makes of its measurements; processes/test_bench_ipc_run has the measurements themselves."""

from __future__ import annotations

import csv
import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from tailrace_research.__main__ import main
from tailrace_research.bench.ipc import channels as ipc_channels
from tailrace_research.bench.ipc import figure8 as ipc_figure8
from tailrace_research.bench.ipc import run as ipc
from tailrace_research.bench.ipc.channels import CONTESTANTS
from tailrace_research.bench.ipc.pairs import FLAT_OUT, RING_BYTES
from tailrace_research.bench.ipc.process import check_count, latencies, pace
from tailrace_research.bench.ipc.table import render_table
from tailrace_research.bench.turns import summarise

SIZES = (100, 10_000, 40_000, 160_000, 320_000)
NO_RING = "the C extension is missing (No module named '_ring'); was there a C compiler when Tailrace was installed?"


class FakePairs:
    """Every contestant takes 10 us, TCP twice that."""

    def __init__(self, warm_up_s: float) -> None:
        self.asked: list[tuple[str, int, int, int]] = []
        FakePairs.last = self

    last: FakePairs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure(self, name: str, size: int, rate: int, seconds: float, capacity: int = RING_BYTES) -> dict[str, float]:
        self.asked.append((name, size, rate, capacity))
        value = 20.0 if name == "tcp" else 10.0
        if rate == FLAT_OUT:
            return {"msgs_per_s": value, "cpu_us": value}
        return {"p50_us": value, "p99_us": value, "mean_us": value, "cpu_us": value, "cpu_with_sleep_us": value}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipc, "Pairs", FakePairs)
    monkeypatch.setattr(ipc_figure8, "Pairs", FakePairs)
    monkeypatch.setattr(ipc, "why_left_out", dict)
    monkeypatch.setattr(ipc_figure8, "why_unavailable", lambda: None)


# --- keys and turns


def test_the_keys_are_flat_and_complete() -> None:
    result = ipc.run_ipc_benchmark(ipc.IpcSizes(repeats=2), lambda line: None)
    for name in CONTESTANTS:
        for size in SIZES:
            rated = [f"{name}_{p}_us_{size}_{rate}" for p in ("p50", "p99") for rate in (100, 3000)]
            cpu = [f"{name}_cpu_us_{size}", f"{name}_cpu_us_{size}_100", f"{name}_cpu_us_{size}_flat_out"]
            for key in (*rated, *cpu, f"{name}_cpu_with_sleep_us_{size}", f"{name}_msgs_per_s_{size}"):
                assert result[f"{key}_spread"] == [result[key]] * 2, key
    assert (result["repeats"], result["seconds"], result["ring_bytes"]) == (2, 0.5, RING_BYTES)
    assert {"cores", "python", "platform", "load_before"} <= set(result)


def test_contestants_take_turns_and_each_contest_gets_a_line() -> None:
    said: list[str] = []
    ipc.run_ipc_benchmark(ipc.IpcSizes(repeats=2), said.append)
    contests = [(size, rate) for size in SIZES for rate in (100, 3000, FLAT_OUT)] * 2
    assert [ask[:3] for ask in FakePairs.last.asked] == [
        (name, *contest) for contest in contests for name in CONTESTANTS
    ]
    assert len(said) == len(contests)
    words = "ring 10 us, shared 10 us, tcp 20 us, bare 10 us, unix 10 us, queue 10 us, zmq 10 us"
    assert re.fullmatch(rf" +1/30  100 bytes at 100/s +{words}", said[0])
    assert re.fullmatch(r" +3/30  100 bytes flat out +ring 10/s, .*", said[2])


def test_who_is_missing_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipc_channels, "why_no_ring", lambda: NO_RING)
    monkeypatch.setattr(ipc_channels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(ipc, "why_left_out", ipc_channels.why_left_out)
    said: list[str] = []
    result = ipc.run_ipc_benchmark(ipc.IpcSizes(repeats=1), said.append)
    assert said[:2] == [
        f"the rings are left out: {NO_RING}",
        "ZeroMQ is left out: pyzmq is not installed (`pip install 'tailrace-research[bench]'`)",
    ]
    assert {ask[0] for ask in FakePairs.last.asked} == {"tcp", "bare", "unix", "queue"}
    table = render_table(result)
    assert "bytes, ring" not in table and "bytes, shared" not in table and "PairRing" not in table
    assert "bytes, tcp" in table


def test_the_default_run_and_the_quick_one_keep_their_time() -> None:
    contests = len(CONTESTANTS) * len(SIZES) * 3
    start_s = 0.04  # of a pair of processes
    for sizes, limit_s in ((ipc.IpcSizes(), 360), (ipc.QUICK, 40)):
        assert contests * sizes.repeats * (sizes.seconds + sizes.warm_up_s + start_s) < limit_s
    assert ipc.IpcSizes().repeats == 5


# --- the table


def test_the_table_has_a_block_for_each_rate_with_ratios_and_ranges() -> None:
    result = ipc.run_ipc_benchmark(ipc.IpcSizes(), lambda line: None)
    key = "ring_p50_us_40000_3000"
    result |= summarise({key: [8.0, 9.0, 11.0, 12.0, 9.0]})
    table = render_table(result)
    assert re.search(r"^at 100 messages/s +p50, us +x tcp +p99, us +x tcp +CPU, us +x tcp$", table, re.MULTILINE)
    assert re.search(r"^at 3,000 messages/s ", table, re.MULTILINE)
    assert re.search(r"^flat out +messages/s +x tcp +CPU, us +x tcp$", table, re.MULTILINE)
    assert re.search(r"^40,000 bytes, ring +9\.0 +\[8\.0\.\.12\.0\] +0\.45 ", table, re.MULTILINE)
    assert re.search(r"^40,000 bytes, tcp +20\.0 +\[20\.0\.\.20\.0\] +20 ", table, re.MULTILINE)
    assert "few repeats" not in table
    assert "ring: a PairRing of 1 MiB, copying, up to 64 records or 256 KiB a read." in table


def test_few_repeats_are_called_that() -> None:
    assert "few repeats" in render_table(ipc.run_ipc_benchmark(ipc.QUICK, lambda line: None))


# --- pacing and latency


def test_latency_counts_from_when_a_message_was_due() -> None:
    start_ns, period_ns = 5_000, 1_000_000
    delays = (7_000, 9_000, 8_000)
    arrivals = [start_ns + number * period_ns + delay for number, delay in enumerate(delays)]
    assert latencies(arrivals, start_ns, 1_000) == {"p50_us": 8.0, "p99_us": 9.0, "mean_us": 8.0}


def test_a_sender_that_is_late_catches_up() -> None:
    """A message that took long does not move those after it: they are due when they are due."""
    sent: list[int] = []
    sent_ns: list[int] = []

    def send(payload: bytes) -> None:
        sent.append(len(payload))
        if len(sent) == 1:
            time.sleep(0.02)
        sent_ns.append(time.monotonic_ns())

    paced = pace(send, b"123", 1_000, 30)
    assert sent == [3] * 30
    due_ns = [paced.start_ns + number * 1_000_000 for number in range(30)]
    assert all(at_ns >= due for at_ns, due in zip(sent_ns, due_ns, strict=True))
    assert sent_ns[19] - sent_ns[0] < 19_000_000  # those that were held up went out at once
    assert paced.sleeping_ns > 0 and paced.watching_ns > 0


def test_a_lost_message_is_an_error() -> None:
    check_count(3, 3)
    with pytest.raises(ValueError, match="messages were lost or doubled: sent=3 received=2"):
        check_count(3, 2)


# --- figure 8


def test_figure_8_is_measured_drawn_and_tabled(tmp_path: Path) -> None:
    drawn = ipc_figure8.draw_figure8(tmp_path / "new", ipc.QUICK, lambda line: None)
    assert [path.name for path in drawn] == [f"figure8{one}.{kind}" for one in "abc" for kind in ("svg", "csv")]
    for path in drawn:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
    with (tmp_path / "new" / "figure8b.csv").open() as file:
        rows = list(csv.DictReader(file))
    theirs = {(row["contestant"], row["bytes"]): float(row["mean_us"]) for row in rows if row["whose"] == "theirs"}
    assert theirs == {("netty", "10000"): 11_430.0, ("netty", "40000"): 192_360.0}
    assert {(row["contestant"], row["p50_us"]) for row in rows if row["whose"] == "ours"} == {
        ("ring", "10.0"),
        ("tcp", "20.0"),
    }


def test_the_rings_of_figure_8c_surround_the_size_that_they_found_best() -> None:
    points = [point for point in ipc_figure8.all_points() if point.figure == "c"]
    for size in ipc_figure8.C_BYTES:
        fits = [point.capacity / size for point in points if point.message_bytes == size]
        assert min(fits) < 10 < 50 < 100 < max(fits)
        assert all(fit > 2.5 for fit in fits)  # a record takes half of a ring at most


def test_figure_8_needs_the_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipc_figure8, "why_unavailable", lambda: NO_RING)
    said: list[str] = []
    assert ipc_figure8.draw_figure8(tmp_path, ipc.QUICK, said.append) == []
    assert said == [f"Figure 8 is left out: {NO_RING}"]


# --- the command


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--repeats", "0"), "'--repeats': 0 is not in the range x>=1"),
        (("--seconds", "0.01"), "'--seconds': 0.01 is not in the range x>=0.1"),
        (("--json", "/no/such/folder/f.json"), "--json: no such folder: /no/such/folder"),
        (("--plots", __file__), "is a file"),
    ],
)
def test_bad_options_of_the_command_are_named(arguments: tuple[str, ...], expected: str) -> None:
    result = CliRunner().invoke(main, ["bench", "ipc", *arguments])
    assert result.exit_code == 2
    assert expected in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ipc.IpcSizes()),
        (("--quick",), ipc.QUICK),
        (("--quick", "--repeats", "7"), ipc.IpcSizes(0.15, 7, 0.05)),
        (("--seconds", "2"), ipc.IpcSizes(2.0, 5, 0.1)),
    ],
)
def test_options_say_how_much_is_measured(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: ipc.IpcSizes
) -> None:
    seen: list[ipc.IpcSizes] = []
    real = ipc.run_ipc_benchmark

    def run(sizes: ipc.IpcSizes, say: Any) -> dict[str, Any]:
        seen.append(sizes)
        return real(sizes, say)

    monkeypatch.setattr(ipc, "run_ipc_benchmark", run)
    assert CliRunner().invoke(main, ["bench", "ipc", *arguments]).exit_code == 0
    assert seen == [expected]
