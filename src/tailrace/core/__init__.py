"""The engine's decisions: plans, tasks, routing and the protocol. Events in, commands out; no clocks, threads or I/O.

The runtime and the fault simulation drive the same objects. ``assembly`` puts the tasks of a worker together.
"""
