"""Where commands become actions: processes, threads, sockets, files. Knows nothing of Spark."""
