"""Input queues of tasks: queues that several tasks share, and the admission of senders."""
