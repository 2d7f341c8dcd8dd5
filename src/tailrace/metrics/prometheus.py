"""A run as Prometheus sees it: its progress in the text format, and a small server to scrape it from.

Names follow the Prometheus conventions: seconds, ``_total`` for what only grows. Counters cover one run; a run that
resumes from a checkpoint begins at zero again, which Prometheus takes for the reset it is.
"""

from __future__ import annotations

import errno
import logging
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.metrics.exposition import (
    CONTENT_TYPE,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    SUMMARY,
    Family,
    Labels,
    Sample,
    histogram,
    render_family,
    summary,
)
from tailrace.metrics.progress import RUNNING, Progress

logger = logging.getLogger("tailrace")

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
BOUNDS_NS = (*(step * 10**decade for decade in range(5, 11) for step in (1, 2, 5)), 10**11)
"""0.1 ms to 100 s. They are among the bounds of ``latencyHistogram``, so that no count has to be split."""

_IDLE_S = 10.0  # a client that connects and says nothing holds a thread no longer
_POLL_S = 0.1  # how long closing may take

Read = Callable[[Progress], Iterable[Sample]]


class Scraped(Protocol):
    """What can be served: the handle of a run. ``name``, ``id``, ``runId`` and ``isActive`` are used if it has them."""

    @property
    def lastProgress(self) -> dict[str, Any] | None: ...


def render(progress: Progress, *, active: bool = True) -> str:
    """A progress in the text exposition format 0.0.4. Parts that ``progress`` does not have are left out."""
    state = {**progress, "active": active}
    lines = (line for family, read in _TABLE for line in render_family(family, list(read(state))))
    return "".join(f"{line}\n" for line in lines)


# -- how samples are read out of a progress


def _run(key: str) -> Read:
    """One number of the whole run."""

    def read(progress: Progress) -> Iterator[Sample]:
        if key in progress:
            yield Sample(_topology(progress), progress[key])

    return read


def _task(key: str) -> Read:
    return _each_task(lambda task: task[key])


def _each_task(value: Callable[[Progress], float]) -> Read:
    def read(progress: Progress) -> Iterator[Sample]:
        for labels, task in _tasks(progress):
            yield Sample(labels, value(task))

    return read


def _worker(value: Callable[[Progress], float]) -> Read:
    def read(progress: Progress) -> Iterator[Sample]:
        for worker in progress.get("workers", ()):
            yield Sample((*_topology(progress), ("worker", str(worker["worker"]))), value(worker))

    return read


def _latency(key: str) -> Read:
    def read(progress: Progress) -> Iterator[Sample]:
        if "latencyMs" in progress:
            yield from _summary(_topology(progress), progress["latencyMs"][key])

    return read


def _execution(progress: Progress) -> Iterator[Sample]:
    for labels, task in _tasks(progress):
        yield from _summary(labels, task["executionMs"])


def _latency_histogram(progress: Progress) -> Iterator[Sample]:
    if "latencyHistogram" not in progress:
        return
    counts = [(round(upper_ms * MILLISECOND_NS), int(count)) for upper_ms, count in progress["latencyHistogram"]]
    cumulative = [(bound / SECOND_NS, sum(count for upper, count in counts if upper <= bound)) for bound in BOUNDS_NS]
    total = _sum_s(progress["latencyMs"]["complete"])
    yield from histogram(_topology(progress), cumulative, sum(count for _, count in counts), total)


def _info(progress: Progress) -> Iterator[Sample]:
    ids = (("id", str(progress.get("id", ""))), ("run_id", str(progress.get("runId", ""))))
    yield Sample((*_topology(progress), *ids), 1)


def _elapsed(progress: Progress) -> Iterator[Sample]:
    if "elapsedMs" in progress:
        yield Sample(_topology(progress), _seconds(progress["elapsedMs"]))


def _state_lost(progress: Progress) -> Iterator[Sample]:
    if "stateLost" in progress:
        yield Sample(_topology(progress), len(progress["stateLost"]))


def _summary(labels: Labels, distribution: Progress) -> Iterator[Sample]:
    known = [(quantile, distribution[key]) for key, quantile in QUANTILES if distribution[key] is not None]
    quantiles = [(quantile, _seconds(value)) for quantile, value in known]
    yield from summary(labels, quantiles, distribution["count"], _sum_s(distribution))


def _tasks(progress: Progress) -> Iterator[tuple[Labels, Progress]]:
    """The tasks that have reported; before, they are on no worker and have counted nothing."""
    for operator in progress.get("operators", ()):
        for task in operator["tasks"]:
            if task["worker"] is not None:
                place = (("operator", operator["name"]), ("task", str(task["task"])), ("worker", str(task["worker"])))
                yield (*_topology(progress), *place), task


def _topology(progress: Progress) -> Labels:
    return (("topology", str(progress.get("name", ""))),)


def _sum_s(distribution: Progress) -> float:
    """The exact sum where the progress has it. The mean is rounded, so that a sum made of it may even shrink."""
    total_ms = distribution.get("sum")
    return _seconds((distribution["mean"] or 0.0) * distribution["count"] if total_ms is None else total_ms)


def _seconds(ms: float) -> float:
    return round(ms / 1_000, 9)


# -- all metrics, in the order in which they are served

_RUN = ("topology",)
_TASK = ("topology", "operator", "task", "worker")
_WORKER = ("topology", "worker")

_TABLE: tuple[tuple[Family, Read], ...] = (
    (Family("tailrace_run_info", GAUGE, "Always 1; says which run this is.", (*_RUN, "id", "run_id")), _info),
    (Family("tailrace_run_active", GAUGE, "1 while the run goes on, 0 once it has ended.", _RUN), _run("active")),
    (Family("tailrace_run_elapsed_seconds", GAUGE, "Time since the run started.", _RUN), _elapsed),
    (
        Family("tailrace_roots_pending", GAUGE, "Roots that were read and are not yet durable.", _RUN),
        _run("pending"),
    ),
    (
        Family("tailrace_roots_completed_total", COUNTER, "Roots that every operator has processed.", _RUN),
        _run("completed"),
    ),
    (
        Family("tailrace_roots_durable_total", COUNTER, "Roots that every sink has committed.", _RUN),
        _run("durable"),
    ),
    (
        Family("tailrace_roots_reemitted_total", COUNTER, "Roots that were sent again after a loss.", _RUN),
        _run("reemitted"),
    ),
    (
        Family("tailrace_recoveries_total", COUNTER, "Recoveries from a lost worker or link.", _RUN),
        _run("recoveries"),
    ),
    (
        Family("tailrace_state_lost_tasks", GAUGE, "Stateful tasks that began anew because their worker died.", _RUN),
        _state_lost,
    ),
    (
        Family("tailrace_complete_latency_seconds", SUMMARY, "From due to complete, since the run started.", _RUN),
        _latency("complete"),
    ),
    (
        Family("tailrace_durable_latency_seconds", SUMMARY, "From due to durable, since the run started.", _RUN),
        _latency("durable"),
    ),
    (
        Family("tailrace_complete_latency_histogram_seconds", HISTOGRAM, "From due to complete, in buckets.", _RUN),
        _latency_histogram,
    ),
    (
        Family("tailrace_received_total", COUNTER, "Tuples taken in; by a source: records read.", _TASK),
        _task("received"),
    ),
    (
        Family("tailrace_emitted_total", COUNTER, "Tuples sent, those sent again included.", _TASK),
        _task("emitted"),
    ),
    (
        Family("tailrace_skipped_total", COUNTER, "Tuples given up under on_error=skip.", _TASK),
        _task("skipped"),
    ),
    (
        Family("tailrace_dead_letters_total", COUNTER, "Tuples sent to the dead letters.", _TASK),
        _task("deadLetters"),
    ),
    (
        Family("tailrace_duplicates_total", COUNTER, "Rows that a sink dropped because it had them.", _TASK),
        _task("duplicates"),
    ),
    (
        Family("tailrace_queued_tuples", GAUGE, "Tuples that wait to be executed.", _TASK),
        _task("queued"),
    ),
    (
        Family("tailrace_busy_seconds_total", COUNTER, "Time spent inside the operator's function.", _TASK),
        _each_task(lambda task: _sum_s(task["executionMs"])),
    ),
    (
        Family("tailrace_blocked_seconds_total", COUNTER, "Time held back by a full receiver.", _TASK),
        _each_task(lambda task: _seconds(task["blockedMs"])),
    ),
    (
        Family("tailrace_cpu_seconds_total", COUNTER, "Processor time of the task.", _TASK),
        _each_task(lambda task: _seconds(task["cpuMs"])),
    ),
    (
        Family("tailrace_execution_seconds", SUMMARY, "Time of one call, since the run started.", _TASK),
        _execution,
    ),
    (
        Family("tailrace_worker_up", GAUGE, "1 while the worker runs, 0 while it does not.", _WORKER),
        _worker(lambda worker: worker["state"] == RUNNING),
    ),
    (
        Family("tailrace_worker_restarts_total", COUNTER, "Times the worker was started again.", _WORKER),
        _worker(lambda worker: worker["restarts"]),
    ),
    (
        Family("tailrace_worker_cpu_seconds_total", COUNTER, "Processor time of the worker's process.", _WORKER),
        _worker(lambda worker: worker["cpuSeconds"]),
    ),
)

FAMILIES = tuple(family for family, _ in _TABLE)
"""Every metric there is."""


# -- serving


class MetricsServer:
    """Serves a run's metrics until it is closed; the end of the run does not close it."""

    def __init__(self, run: Scraped, port: int, address: str) -> None:
        self._server = _listen(run, port, address)
        self.port: int = self._server.server_address[1]
        serve = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="tailrace-metrics", daemon=True
        )
        serve.start()

    def close(self) -> None:
        """Stop listening. May be called more than once."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_metrics(run: Scraped, port: int, address: str = "127.0.0.1") -> MetricsServer:
    """Serve ``/metrics`` from this process. Port 0 takes any free one: the server's ``port`` says which."""
    return MetricsServer(run, port, address)


def scrape(run: Scraped) -> str:
    """The metrics of a run as they are now; before its first progress, only which run it is and that it goes on."""
    progress = run.lastProgress
    if progress is None:
        progress = {key: getattr(run, key) for key in ("name", "id", "runId") if hasattr(run, key)}
    return render(progress, active=getattr(run, "isActive", True))


class _Server(ThreadingHTTPServer):
    run: Scraped

    def server_bind(self) -> None:
        # HTTPServer would look its own name up in the DNS, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that left is no error
            logger.warning("metrics could not be served", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _IDLE_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE, scrape(self.server.run))
        elif path == "/":
            self._answer(200, "text/html; charset=utf-8", '<title>tailrace</title><a href="/metrics">metrics</a>\n')
        else:
            self._answer(404, "text/plain; charset=utf-8", "not found: try /metrics\n")

    def _answer(self, status: int, content_type: str, text: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line per scrape on the driver's screen would help nobody."""


def _listen(run: Scraped, port: int, address: str) -> _Server:
    try:
        server = _Server((address, port), _Handler)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise OSError(f"port is taken: port={port}; is another run using it?") from error
        raise OSError(f"cannot listen: address={address} port={port}; {error}") from error
    server.run = run
    return server
