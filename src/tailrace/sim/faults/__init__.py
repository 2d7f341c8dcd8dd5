"""The fault simulation: the production core among simulated processes and a simulated network that fail.

``seeded_runs`` has ``run_seed``, which draws a scenario from a seed, runs it and checks the promises. ``cluster``,
``driver``, ``process`` and ``links`` are the simulated machines; ``topologies`` are what they run; ``nemesis``,
``polls``, ``bounds``, ``eager_hedging`` and ``sinks`` add further faults and load. ``journal`` records a run for the
golden file. ``python -m tailrace.sim`` runs many seeds, or repeats one.
"""
