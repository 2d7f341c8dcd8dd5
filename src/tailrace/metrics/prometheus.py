"""A small HTTP server from which Prometheus scrapes a run."""

from __future__ import annotations

import errno
import logging
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from tailrace.metrics.exposition import CONTENT_TYPE
from tailrace.metrics.families import render

logger = logging.getLogger("tailrace")

_IDLE_S = 10.0  # how long a silent client may occupy a thread
_POLL_S = 0.1  # how long closing may take


class Scraped(Protocol):
    """A run handle, as far as its metrics need it. ``name``, ``id``, ``runId`` and ``isActive`` are used if present."""

    @property
    def lastProgress(self) -> dict[str, Any] | None: ...


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
    """The current metrics of a run. Before its first progress, only its identity and that it is active."""
    progress = run.lastProgress
    if progress is None:
        progress = {key: getattr(run, key) for key in ("name", "id", "runId") if hasattr(run, key)}
    return render(progress, active=getattr(run, "isActive", True))


class _Server(ThreadingHTTPServer):
    run: Scraped

    def server_bind(self) -> None:
        # HTTPServer would look up its own name in the DNS, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that disconnects is not an error
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
        """Log nothing: a line per scrape would only clutter the driver's output."""


def _listen(run: Scraped, port: int, address: str) -> _Server:
    try:
        server = _Server((address, port), _Handler)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise OSError(f"port is taken: port={port}; is another run using it?") from error
        raise OSError(f"cannot listen: address={address} port={port}; {error}") from error
    server.run = run
    return server
