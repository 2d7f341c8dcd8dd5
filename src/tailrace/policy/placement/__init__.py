"""Placement: on which node, and in which of its workers, each task of a run lives."""
