"""A workload and a cluster, as values."""
