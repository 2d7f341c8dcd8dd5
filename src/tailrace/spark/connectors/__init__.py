"""Spark's data sources and DataFrames as sources and sinks."""
