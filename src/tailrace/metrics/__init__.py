"""What a run measures: counters and histograms of tasks, the progress made from them, Prometheus, recordings."""
