"""Recorded runs: read, calibrated, and played again."""
