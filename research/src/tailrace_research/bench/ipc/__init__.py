"""``bench ipc``: the rings beside every other way to hand bytes to another process."""
