"""Paid calls at a real HTTP server, by a run whose workers are killed, and whose driver is killed and started again."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kit.runs import Script, assert_same_rows, read_jsonl
from tailrace.testing.processes import wait_until

WORKERS, CONCURRENCY = 3, 4

DRIVER = """
import json, sys, threading, time, urllib.request
from pathlib import Path
import tailrace as tr

folder, port, numbers, journal, concurrency, workers = Path(sys.argv[1]), *map(int, sys.argv[2:])


def score(number):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}", timeout=60) as answer:
        return json.load(answer)


def write_pids(run):
    while run.isActive:
        fresh = folder / "pids.new"
        fresh.write_text(json.dumps(run.workerPids()))
        fresh.replace(folder / "pids.json")
        time.sleep(0.02)


topology = tr.Topology("paid")
calls = tr.Calls(concurrency=concurrency, journal=folder / "journal" if journal else None)
rows = topology.source("numbers", tr.from_iterable(range(numbers)))
scored = rows.map("score", score, calls=calls, tasks=workers)
scored.sink("out", tr.to_jsonl(folder / "out", roll_seconds=2.0))
run = topology.run(workers=workers, checkpoint=folder / "checkpoint")
threading.Thread(target=write_pids, args=(run,), daemon=True).start()
run.awaitTermination()
print("found", run.lastProgress["operators"][1].get("calls"), flush=True)
"""


class PaidService:
    """Counts what it is asked, and answers after a while."""

    def __init__(self, seconds: float) -> None:
        self.asked: Counter[int] = Counter()
        self.in_flight = 0
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                number = int(self.path[1:])
                with service._lock:
                    service.asked[number] += 1
                    service.in_flight += 1
                try:
                    time.sleep(seconds)
                    body = json.dumps({"n": number, "score": number * 7 % 101}).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the caller was killed
                finally:
                    with service._lock:
                        service.in_flight -= 1

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def calls(self) -> int:
        return self.asked.total()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def paid_service(seconds: float) -> Iterator[PaidService]:
    service = PaidService(seconds)
    try:
        yield service
    finally:
        service.close()


@dataclass
class Bill:
    """What the calls of a run came to."""

    needed: int
    calls: int = 0
    kills: int = 0
    in_flight: list[int] = field(default_factory=list)  # at the service, at each kill

    @property
    def repeated(self) -> int:
        return self.calls - self.needed


def run_with_kills(folder: Path, numbers: int, *, journal: bool, seconds: float, worker_kills: int = 5) -> Bill:
    """Run to the end, with kills of workers in turn and then one of the driver, spread over the first passage."""
    folder.mkdir()
    bill = Bill(numbers)
    arguments = [str(numbers), str(int(journal)), str(CONCURRENCY), str(WORKERS)]
    with paid_service(seconds) as service:
        with Script(folder, DRIVER, str(folder), str(service.port), *arguments) as driver:
            for kill in range(worker_kills):
                _await_calls(service, driver, numbers * (kill + 1) // (worker_kills + 2))
                _kill_worker(folder, kill % WORKERS, service, bill)
            _await_calls(service, driver, numbers * (worker_kills + 1) // (worker_kills + 2))
            workers = list(_pids(folder).values())
            bill.in_flight.append(service.in_flight)
            driver.kill()
            bill.kills += 1
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 30, "the workers to leave")
        wait_until(lambda: not service.in_flight, 30, "the last calls to end")
        with Script(folder, DRIVER, str(folder), str(service.port), *arguments) as driver:
            output = driver.end(120)
            assert driver.process.returncode == 0, output
        bill.calls = service.calls
        assert set(service.asked) == set(range(numbers))
    assert_same_rows([row["n"] for row in read_jsonl(folder / "out")], range(numbers))
    return bill


def _await_calls(service: PaidService, driver: Script, distinct: int) -> None:
    def reached() -> bool:
        assert driver.process.poll() is None, f"the driver has ended: {driver.end()}"
        return len(service.asked) >= distinct and service.in_flight >= CONCURRENCY

    wait_until(reached, 120, f"{distinct} calls")


def _kill_worker(folder: Path, worker: int, service: PaidService, bill: Bill) -> None:
    pid = _pids(folder)[worker]
    bill.in_flight.append(service.in_flight)
    os.kill(pid, signal.SIGKILL)
    bill.kills += 1
    wait_until(lambda: _pids(folder).get(worker, pid) != pid, 60, "the worker to be replaced")


def _pids(folder: Path) -> dict[int, int]:
    return {int(worker): pid for worker, pid in json.loads((folder / "pids.json").read_text()).items()}
