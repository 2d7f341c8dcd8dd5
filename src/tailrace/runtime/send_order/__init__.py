"""Sending in an order that a send scheduler decides, for a worker and for a whole machine."""
