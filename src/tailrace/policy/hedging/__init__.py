"""Hedging: which late roots a source emits once more, and where the hedges go.

How a hedge is chosen: a ``HedgeRule`` (``api``) binds a hedger for each source task. ``adaptive`` and ``fixed`` hedge
roots that are older than a timeout (``timeouts``), as far as the ``budget`` allows; ``latencies`` estimates the
quantiles that the adaptive timeout is made of. ``replicate`` and ``du`` are baselines. At the first edge a hedge goes
to the task at which the least waits (``least_waiting``); further down, to the half of the tasks that the other emission
does not use (``disjoint_halves``).

How it is emitted, which emission wins, and how the others are cancelled: see ``tailrace.core.hedging``.

The law of rules is in ``api``; ``tailrace.testing.check_hedge_rule`` checks it.
"""
