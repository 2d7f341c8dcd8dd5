"""Queues that several tasks draw from, within a worker and across the workers of a machine."""
