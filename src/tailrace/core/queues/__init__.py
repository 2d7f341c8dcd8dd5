"""Input queues of tasks: those that several tasks draw from, and the admission of senders."""
