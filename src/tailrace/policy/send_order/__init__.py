"""Send order: which outgoing queue of a worker sends next."""
