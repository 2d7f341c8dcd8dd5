"""The driver's side of a run: its handle, the coordinator's server, checkpoints."""
