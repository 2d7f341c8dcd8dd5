"""A worker process, and what it sets up for its tasks."""
