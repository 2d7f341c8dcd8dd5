"""Hedging: which roots are emitted once more, when, and to which tasks."""
