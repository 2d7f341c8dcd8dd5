"""The row about send schedulers, live and simulated."""
