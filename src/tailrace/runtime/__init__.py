"""Executes what ``core`` decides: processes, threads, sockets and files. Knows nothing of Spark."""
