"""Calls in a Spark task's own process: a column, ``tr.udf``, and a step of a DataFrame, ``tr.map_rows``."""
