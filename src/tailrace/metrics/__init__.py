"""Counters and histograms of tasks, the progress that is made from them, Prometheus's text, recordings."""
