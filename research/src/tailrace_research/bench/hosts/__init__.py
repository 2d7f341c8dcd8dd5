"""``bench hosts``: for how long nothing is completed when a host, an executor or a process is lost."""
