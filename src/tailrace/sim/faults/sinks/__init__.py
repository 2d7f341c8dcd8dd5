"""Sinks of the fault simulation, and their faults."""
