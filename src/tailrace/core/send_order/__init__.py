"""The order in which the tasks of an operator send: outgoing queues, schedulers, and the uplink that they share."""
