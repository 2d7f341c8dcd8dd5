"""The contestants of `tailrace bench ipc` really carry messages, and what goes wrong between them is told."""

from __future__ import annotations

import json
import multiprocessing
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tailrace import TailraceError
from tailrace_research.bench.ipc.channels import CONTESTANTS, Channel, Rings, open_channel, why_left_out
from tailrace_research.bench.ipc.pairs import FLAT_OUT, Pairs

PRESENT = [name for name in CONTESTANTS if not any(name in names for names in why_left_out())]
needs_ring = pytest.mark.skipif("ring" not in PRESENT, reason="the C extension is missing")


def send_some(channel: Channel, payloads: list[bytes], line: Connection) -> None:
    signal.alarm(60)
    line.recv()
    send = channel.sender()
    for payload in payloads:
        send(payload)
    line.recv()  # stay until all is there


def receive_some(channel: Channel, count: int, line: Connection, answer: Connection) -> None:
    signal.alarm(60)
    receive = channel.receiver()
    line.send("there")
    got: list[bytes] = []
    while len(got) < count:
        got += map(bytes, receive())
    line.send("all")
    answer.send(got)


def runs(pid: int) -> bool:
    """Whether a process is there, and not only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("name", PRESENT)
def test_what_was_sent_is_received_once_whole_and_in_order(name: str) -> None:
    """The law of a channel, with more bytes than any of them holds."""
    payloads = [bytes([number % 256]) * (number * 997 % 60_000) for number in range(400)]
    context = multiprocessing.get_context("fork")
    channel = open_channel(name, 10_000, 1 << 20)
    one, other = context.Pipe()
    result, answer = context.Pipe(duplex=False)
    processes = [
        context.Process(target=receive_some, args=(channel, len(payloads), other, answer), daemon=True),
        context.Process(target=send_some, args=(channel, payloads, one), daemon=True),
    ]
    for process in processes:
        process.start()
    try:
        assert result.poll(60)
        assert result.recv() == payloads
    finally:
        for process in processes:
            process.join(10)
            process.kill()
        channel.close()
    if isinstance(channel, Rings):
        assert not channel._segment.path.exists()


@pytest.mark.parametrize("name", PRESENT)
def test_each_contestant_is_measured(name: str) -> None:
    with Pairs(0.02) as pairs:
        rated = pairs.measure(name, 1_000, 500, 0.1)
        flat_out = pairs.measure(name, 100_000, FLAT_OUT, 0.1)
    assert 0 < rated["p50_us"] <= rated["p99_us"]
    assert 0 < rated["cpu_us"] < rated["cpu_with_sleep_us"]
    assert flat_out["msgs_per_s"] > 10
    assert flat_out["cpu_us"] > 0


@needs_ring
def test_what_goes_wrong_in_a_child_is_told_and_the_next_one_is_measured() -> None:
    with Pairs(0.02) as pairs:
        place = "contestant=ring bytes=40000 rate=100"
        with pytest.raises(TailraceError, match=rf"processes failed: {place}\n(?s:.*)record too large for the ring"):
            pairs.measure("ring", 40_000, 100, 0.1, 64 << 10)
        assert pairs.measure("ring", 100, 100, 0.1)["p50_us"] > 0


def test_a_name_that_nobody_has_is_told() -> None:
    with (
        Pairs(0.02) as pairs,
        pytest.raises(
            TailraceError, match=r"failed: exit_code=1: contestant=pigeon (?s:.*)no such contestant: name=pigeon"
        ),
    ):
        pairs.measure("pigeon", 100, 100, 0.1)


def test_an_interrupted_measurement_leaves_nothing_behind() -> None:
    with Pairs(30.0) as pairs:
        assert pairs._process.stdin is not None
        task = {"name": PRESENT[0], "bytes": 100, "rate": 0, "seconds": 30, "capacity": 1 << 20}
        pairs._process.stdin.write(json.dumps({**task, "warm_up_s": 30, "timeout_s": 90}) + "\n")
        pairs._process.stdin.flush()
        children = Path(f"/proc/{pairs._process.pid}/task/{pairs._process.pid}/children")
        while len(started := children.read_text().split()) < 2:
            pass
    assert pairs._process.returncode == 1
    deadline = time.monotonic() + 10
    while any(runs(int(child)) for child in started):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    owners = [int(path.name.split("-")[3]) >> 32 for path in Path("/dev/shm").glob("tailrace-bench-*")]
    assert pairs._process.pid not in owners


@pytest.mark.slow
@pytest.mark.soak
def test_bench_ipc_really(tmp_path: Path) -> None:
    file = tmp_path / "ipc.json"
    options = ["--quick", "--seconds", "0.1", "--json", str(file)]
    command = [sys.executable, "-m", "tailrace_research", "bench", "ipc", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    for name in PRESENT:
        for size in (100, 320_000):
            for key in (f"{name}_p50_us_{size}_3000", f"{name}_msgs_per_s_{size}", f"{name}_cpu_us_{size}"):
                assert figures[key] > 0, key
    assert f"written to {file}" in done.stdout
    assert len(done.stderr.splitlines()) >= 15
