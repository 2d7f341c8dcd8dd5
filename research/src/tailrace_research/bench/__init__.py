"""Benchmarks: the engine, beside baselines that are hard to beat."""
