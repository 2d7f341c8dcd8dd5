"""Calls in a Spark task's own process: a column, ``tr.udf``, and a step of a DataFrame, ``tr.map_rows``."""

import pyspark

from tailrace.errors import SparkMissing

NEEDED = (4, 1)
"""The first version with UDFs over iterators of Arrow arrays, and with converters of values as they use them."""

if tuple(map(int, pyspark.__version__.split(".")[:2])) < NEEDED:
    raise SparkMissing(
        f"PySpark is too old for tr.udf and tr.map_rows: pyspark={pyspark.__version__} needed=4.1: "
        "did you forget pip install -U 'tailrace[spark]'?"
    )
