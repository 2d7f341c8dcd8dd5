"""``python -m tailrace.runtime``: a worker process. Its host writes the driver's address to standard input as JSON."""

from __future__ import annotations

import os
import sys

from tailrace.errors import ProtocolError
from tailrace.runtime.links.control import Bootstrap
from tailrace.runtime.worker.process import orphaned, serve


def main() -> None:
    """Run a worker process. Its bootstrap comes through standard input."""
    if sys.stdin is None or sys.stdin.isatty():
        sys.exit("tailrace.runtime is started by Tailrace itself; to run a topology, call topology.run()")
    bootstrap = Bootstrap.from_json(sys.stdin.read())
    try:
        serve(bootstrap)
    except (OSError, ProtocolError):
        orphaned()
    os._exit(0)  # a normal exit would wait for threads that are still in user code


if __name__ == "__main__":
    main()
