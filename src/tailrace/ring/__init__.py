"""Ring buffers in shared memory, between the workers of one machine.

``PairRing`` has one writer and one reader; ``SharedRing``, TurboStream's OSRBuffer, has many of both. The algorithms
are in C (``_ring.c``). Where that could not be built, ``why_unavailable`` gives the reason, and links use TCP.
"""

from __future__ import annotations


def why_unavailable() -> str | None:
    """Why there are no rings on this machine; None if there are."""
    try:
        from tailrace.ring import _ring  # noqa: F401
    except ImportError as error:
        return f"the C extension is missing ({error}); was there a C compiler when Tailrace was installed?"
    return None
