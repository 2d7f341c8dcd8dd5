"""Authenticated connections between processes, and the frames on them."""
