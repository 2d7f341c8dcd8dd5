"""DataFrames of what file sinks commit: a table of what is there, and a stream of all that comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.connector import FileSink
from tailrace.errors import OptionError, shorten
from tailrace.policy.numbers import is_whole
from tailrace.spark.connectors.part_folder import part_folder, session_of
from tailrace.spark.shared_folder import check_shared, check_streamable


def committed_table(spark: Any, sink: FileSink, pattern: str, schema: Any) -> DataFrame:
    """The rows of a sink's files whose names match: what ``Run.table`` returns."""
    session = session_of(spark)
    frame: DataFrame = part_folder(sink, pattern).batch(session, schema)
    return frame


def read_stream(
    spark: SparkSession | None,
    sink: FileSink | str | Path,
    schema: StructType | str | None = None,
    *,
    clean: bool = False,
    max_files: int | None = None,
) -> DataFrame:
    """Make a streaming DataFrame of all rows that a file sink commits, **each once**.

    It has what is in the folder already, of whichever runs, and what comes. A row is there once it is committed and
    the query has looked: ``trigger(processingTime="1 second")`` says how often that is.

    Args:
        spark: the session. ``None``: the active one.
        sink: a sink, such as ``tr.to_parquet("rows/", schema=…)``, or a folder with files of one.
        schema: the columns, in Spark's words or as a ``StructType``. The default is the schema of the sink, or else
            what the files say that are there already; columns that come later are then left out.
        clean: have Spark delete each file that the query has read and has noted in its checkpoint. No other query, and
            no ``Run.table``, can read the rows then.
        max_files: how many files a micro-batch has at most. The default is all that are new.

    Example:
        >>> sink = tr.to_parquet("squares/", schema="n long, square long")
        >>> topology = tr.Topology("squares")
        >>> numbers = topology.source("numbers", tr.from_iterable(range(3)))
        >>> numbers.map("square", lambda n: {"n": n, "square": n * n}).sink("out", sink)
        >>> with topology.run(workers=1) as run:
        ...     run.awaitTermination()
        True
        >>> stream = tr.read_stream(spark, sink).where("n > 0")
        >>> query = stream.writeStream.format("memory").queryName("squares").trigger(availableNow=True).start()
        >>> query.awaitTermination()
        >>> spark.table("squares").orderBy("n").collect()
        [Row(n=1, square=1), Row(n=2, square=4)]
    """
    folder = part_folder(sink)
    if not isinstance(clean, bool):
        raise OptionError(f"option is neither True nor False: clean={shorten(clean)}, did you mean clean=True?")
    if max_files is not None and not (is_whole(max_files) and max_files > 0):
        raise OptionError(
            f"option must be a positive number: max_files={shorten(max_files)}, did you mean to leave it out?"
        )
    check_streamable(folder.path)
    session = session_of(spark)
    check_shared(session, folder.path, "read_stream")
    stream: DataFrame = folder.stream(session, schema, clean, max_files)
    return stream
