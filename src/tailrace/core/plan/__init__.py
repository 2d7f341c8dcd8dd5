"""The plan of a run, made once on the driver: tasks, their workers, and which tasks may share a queue."""
