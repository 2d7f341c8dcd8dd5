"""Sinks of the fault simulation, and what goes wrong with them."""
