"""The papers' testbed measurements, made again on worker processes of this machine."""
