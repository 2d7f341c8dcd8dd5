"""Batches and those who stop the query: each batch is finished or refused, and neither side waits for the other."""

from __future__ import annotations

import threading

import pytest

from tailrace.errors import TailraceError
from tailrace.spark.connectors.handover.batch_gate import BatchGate
from tailrace.testing.processes import wait_until


def test_no_batch_begins_once_the_gate_is_shut() -> None:
    gate = BatchGate()
    with gate.batch(0):
        assert not gate.shut
    assert gate.shut_after_batch(0) and gate.shut
    with pytest.raises(TailraceError) as caught, gate.batch(1):
        raise AssertionError("it has begun")
    assert str(caught.value) == "the query is being stopped: batch=1"


@pytest.mark.parametrize("fault", [None, ValueError("of the batch")])
def test_a_stop_waits_for_the_batch_that_runs(fault: Exception | None) -> None:
    gate, go = BatchGate(), threading.Event()
    ends: list[str] = []

    def run_batch() -> None:
        try:
            with gate.batch(0):
                go.wait(30)
                ends.append("batch")
                if fault is not None:
                    raise fault
        except ValueError:
            pass

    def stop() -> None:
        assert gate.shut_after_batch(30)
        ends.append("stop")

    batch = threading.Thread(target=run_batch, daemon=True)
    batch.start()
    wait_until(lambda: gate._running, 10, "the batch to begin")
    assert not gate.shut_after_batch(0), "it still runs"
    stopping = [threading.Thread(target=stop, daemon=True) for _ in range(2)]
    for thread in stopping:
        thread.start()
    go.set()
    for thread in (batch, *stopping):
        thread.join(10)
    assert ends == ["batch", "stop", "stop"]


def test_batches_and_stops_never_wait_for_each_other() -> None:
    """A query that is stopped ends when the thread of its batches does. That thread once waited for the stop."""
    for _ in range(300):
        gate, batches = BatchGate(), 0

        def run_batches(gate: BatchGate = gate) -> None:
            nonlocal batches
            try:
                while True:
                    with gate.batch(batches):
                        batches += 1
            except TailraceError:
                pass

        query = threading.Thread(target=run_batches, daemon=True)
        query.start()
        assert gate.shut_after_batch(10)
        query.join(10)
        assert not query.is_alive(), f"the stop waits for a batch, and the batch for the stop: batch={batches}"
