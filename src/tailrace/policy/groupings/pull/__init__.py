"""Pull: a tuple stays with its sender until a task has room for it."""
