"""Threads that run tasks, and what connects a task with its worker.

Begin with ``runner`` and ``task_host``. ``ports`` says what a host needs of the rest of the worker.
"""
