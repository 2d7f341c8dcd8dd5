"""Workers as Spark tasks. The only package that imports pyspark, which is an extra: without it this import fails."""

from importlib.util import find_spec

from tailrace.errors import SparkMissing

if find_spec("pyspark") is None:
    raise SparkMissing(
        "Spark is not installed: pip install 'tailrace[spark]', or run on plain processes, without a session "
        "(on the command line: --host process)"
    )
