"""Outgoing queues, their order, and the uplink that they share."""
