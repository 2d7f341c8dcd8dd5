"""The commands that this distribution adds to ``tailrace``: ``bench`` and ``reproduce``."""
