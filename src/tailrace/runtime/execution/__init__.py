"""Threads that run tasks, and what connects a task with its queue and its links."""
