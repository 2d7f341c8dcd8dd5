"""Send order: which outgoing queue of a worker sends next.

``api`` has the protocols and their law, ``tailrace.testing.check_scheduler`` checks it. ``largest_backlog`` has the
rule of Hone, by tuples or by work; ``round_robin`` and ``fifo`` are what to compare it with. How queues are kept and
drained is in ``tailrace.core.send_order`` and ``tailrace.runtime.send_order``.
"""
