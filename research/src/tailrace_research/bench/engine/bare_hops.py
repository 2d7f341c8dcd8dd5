"""Three hops between two processes with bare sockets and threads: what the machine gives before any engine.

    A: source -> B: relay -> A: relay -> B: end

Each hop is a TCP connection on loopback, each stage a thread that blocks in ``recv``, unpickles a message, pickles it
and sends it on. The source is an open loop: message *n* is due at ``start + n / rate`` whatever happened to the
earlier ones, and its latency counts from then.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
from pathlib import Path
from typing import Any

from tailrace_research.bench.children import run_children

HOPS = 3
WARM_UP_S = 0.5  # the first messages pay for imports, page faults and TCP's slow start
GRACE_S = 20.0  # for start-up, and for a machine that cannot keep up with the rate


def run_bare_hops(rate: float, seconds: float) -> dict[str, Any]:
    """Latency from due to end, ``p50_ms``, ``p99_ms``, ``p999_ms``, ``max_ms``, of the ``n`` messages after warm-up."""
    with contextlib.ExitStack() as stack:
        workdir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-bench-")))
        pairs = [connected_pair(stack) for _ in range(HOPS)]
        options = [
            {
                "role": role,
                "sockets": [pair[side].fileno() for pair in pairs],
                "rate": rate,
                "warm_up": round(WARM_UP_S * rate),
                "messages": round((WARM_UP_S + seconds) * rate),
            }
            for side, role in enumerate(("A", "B"))
        ]
        fds = [end.fileno() for pair in pairs for end in pair]
        timeout_s = WARM_UP_S + seconds + GRACE_S
        _, result = run_children(
            "tailrace_research.bench.engine.bare_hops_process", options, workdir, timeout_s, pass_fds=fds
        )
    return result


def connected_pair(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection. The children inherit them: no port is open while the benchmark runs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialled = stack.enter_context(socket.create_connection(listener.getsockname(), timeout=GRACE_S))
        while True:
            accepted = stack.enter_context(listener.accept()[0])
            if accepted.getpeername() == dialled.getsockname():  # and no other client that found the port
                break
    for end in (dialled, accepted):
        end.settimeout(None)  # blocking, also as the child sees it
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return dialled, accepted
