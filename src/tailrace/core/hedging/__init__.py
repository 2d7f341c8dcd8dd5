"""Hedges at work: when a source emits a root once more, which emission wins, what is cancelled."""
