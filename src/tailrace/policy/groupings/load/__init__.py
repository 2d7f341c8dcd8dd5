"""What load-aware groupings know of the tasks: costs, tuples in flight, reports."""
