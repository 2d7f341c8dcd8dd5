"""Simulations on virtual time, driving the same objects as the runtime."""
