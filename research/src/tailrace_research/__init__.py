"""Tailrace's laboratory: benchmarks, the papers' studies, and tools that try to break the rings."""
