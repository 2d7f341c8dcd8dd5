"""The driver's side of a run: the run handle (``run``), the coordinator's event loop (``server``), and checkpoints."""
