"""Groupings: which downstream task gets a tuple.

A grouping is a frozen dataclass with ``name``, ``keyed`` and ``bind(tasks, rng)``; each sending task binds a chooser,
which picks a task for each tuple. ``api`` has both protocols and their law, ``tailrace.testing.check_grouping`` checks
it. A new grouping is a module of its own in this folder: ``shuffle`` is the simplest example.

A grouping that looks at load also has ``bind_receiver``: the receiving tasks then report to the senders. Derive the two
sides from the base classes in ``feedback``, which says what a driver calls and when; ``power_of_two`` is the simplest
example. ``load`` has parts to build them from: reports of executed tuples, tuples in flight, cost tables, sketches.

"Adding a grouping" in CONTRIBUTING.md lists the other files to touch: exports, tests, names for the command line.
"""
