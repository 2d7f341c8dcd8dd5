"""``bench tail``: what each technique does to the tail of latencies."""
