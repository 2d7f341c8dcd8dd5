"""A DataFrame is a bounded source: Spark writes it to Parquet files once, and workers read those.

Reading the DataFrame itself would not be repeatable: Spark may compute it again in another order, or with other rows.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

from tailrace.errors import OptionError, shorten
from tailrace.runtime.connectors.commits.files import absolute
from tailrace.spark.connectors.passing_types import row_reader
from tailrace.spark.connectors.staged_source import DataFrameSource
from tailrace.spark.connectors.staging import check_splits, stage
from tailrace.spark.shared_folder import check_shared
from tailrace.spark.temporary_folders import temporary_folder

_PREFIX = "tailrace-dataframe-"


def from_dataframe(df: DataFrame, *, splits: int | None = None, folder: str | Path | None = None) -> DataFrameSource:
    """Read the rows of a DataFrame, as dicts, and end. **Runs a Spark job at once**, which writes them to a folder.

    Args:
        df: a DataFrame that is not streaming.
        splits: how many files the rows are written to, each of which is a split. The default is the number of the
            DataFrame's partitions.
        folder: where to write; the driver and all workers must reach it under this path. A folder that has all the
            rows of an earlier call, for the same columns, is read as it is: give one where a checkpoint is to be
            resumed. Without it the folder is a temporary one of this machine, deleted when the driver ends or by
            ``source.delete()``.

    Example:
        >>> spark = tr.local_session(cores=2)
        >>> source = tr.from_dataframe(spark.range(10), splits=2)
        >>> topology = tr.Topology("rows")
        >>> topology.source("rows", source, tasks=2).sink("out", tr.to_list())
    """
    if not isinstance(df, DataFrame):
        raise OptionError(f"not a DataFrame: from_dataframe={shorten(df)} type={type(df).__name__}, is it a table?")
    if df.isStreaming:
        raise OptionError("DataFrame is streaming: from_dataframe takes bounded ones, did you mean from_stream?")
    check_splits(splits)
    reader = row_reader(df.schema, "from_dataframe=df")
    place = Path(tempfile.gettempdir()) if folder is None else absolute(folder)
    check_shared(df.sparkSession, place, "from_dataframe")
    if folder is None:
        place = temporary_folder(_PREFIX)
    try:
        stage(df, place, splits, durable=folder is not None)
    except BaseException:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    return DataFrameSource(place, reader)
