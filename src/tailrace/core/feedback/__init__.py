"""Load-aware edges: the feedback sender of an edge, the feedback receiver of a task, and the budget of a worker."""
