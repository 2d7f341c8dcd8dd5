"""What is decided once, before a run: tasks, their homes, and who may share a queue."""
