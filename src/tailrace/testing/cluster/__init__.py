"""A cluster in a box: a standalone Spark on machines that are namespaces of this one, to cut, slow down and kill."""

from tailrace.testing.cluster.box import Box, why_no_box

__all__ = ["Box", "why_no_box"]
