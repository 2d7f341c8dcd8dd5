"""Placement: on which node, and in which of its workers, each task of a run lives.

``api`` has the problem, the result and the law of rules, ``tailrace.testing.check_placement`` checks it; ``problem``
makes and checks problems. Three rules: ``round_robin``, which a plan uses by default; ``coarse``, which keeps traffic
off the network; and ``optimal``, which tries all placements of a small problem, to compare with. ``coarse`` works on
``blocks`` of tasks that stay together: ``consolidate`` and ``bisect`` find a first placement, ``search`` and ``refine``
improve it, ``limits`` and ``settle`` keep it within weights and constraints.
"""
