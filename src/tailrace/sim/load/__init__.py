"""The load simulation: what policies would do to the latencies of a workload, in virtual time.

``simulate`` runs a model (``models``): it draws a ``forest`` of roots and their tuples, lets stages (``stage``) with
the same policy objects as in a run handle them, and returns a ``report``. ``hedging`` drives hedging rules, ``network``
has the links, ``comparison`` shows reports side by side.
"""
