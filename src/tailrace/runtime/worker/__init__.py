"""The worker process: it opens tasks, and sets up their runners, links and logs."""
