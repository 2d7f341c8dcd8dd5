"""Groupings to compare with: those that Storm and Flink ship, and exact knowledge of all costs."""
