"""A folder of part files as Spark reads it, at once or as a stream.

A part file appears in its folder by a rename, once it is committed, and never changes: whatever part files a listing
shows are rows that stay. ``_tailrace`` beside them has a hidden name for Spark.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from tailrace.connector import FileSink
from tailrace.errors import OptionError, TailraceError, shorten
from tailrace.runtime.connectors.commits.disk import make_directory
from tailrace.runtime.connectors.commits.files import absolute
from tailrace.spark.calls.declared import active_session
from tailrace.spark.connectors.table_schema import table_schema
from tailrace.spark.shared_folder import path_to_read

_SPARK_FORMATS = {"parquet": "parquet", "jsonl": "json"}
_NOT_JSON_OBJECTS = "_corrupt_record"  # a column that Spark adds when it infers the schema of lines that it cannot use

_FOR_EVER = "36500d"
"""A file counts as new however old it is. Spark leaves out files that are a week older than the newest that it has
seen, by the time of their last change. That of a part file is older than its name: much older if a job has died in the
middle of a commit and is resumed after a long time. Renewing it at the rename would not help where a clock is wrong:
after one file from the future all later ones would be left out, silently. What a bound could save is memory of the
query's driver only. The log in its checkpoint keeps all names in any case."""


class PartFolder(NamedTuple):
    """Where the files are, what is in them and what their names match."""

    path: Path
    format: str
    pattern: str
    schema: Any | None  # of the sink

    def holds_files(self) -> bool:
        try:
            with os.scandir(self.path) as found:
                return any(fnmatchcase(entry.name, self.pattern) for entry in found)
        except FileNotFoundError:
            return False

    def batch(self, session: Any, schema: Any) -> Any:
        """A DataFrame of the files that are there now."""
        make_directory(self.path)
        return self._load(session.read, self.known(schema))

    def stream(self, session: Any, schema: Any, clean: bool, max_files: int | None) -> Any:
        """A streaming DataFrame of all files that are there or will be."""
        make_directory(self.path)
        known = self.known(schema)
        reader = session.readStream.option("maxFileAge", _FOR_EVER)
        if clean:
            reader = reader.option("cleanSource", "delete")
        if max_files is not None:
            reader = reader.option("maxFilesPerTrigger", max_files)
        return self._load(reader, self._load(session.read, None).schema if known is None else known)

    def known(self, schema: Any) -> Any | None:
        """The schema that was given, or that of the sink. None if that is for the files to say, and there are some."""
        found = table_schema(self.schema if schema is None else schema)
        if found is None and not self.holds_files():
            raise TailraceError(
                f"nothing is committed yet, and the columns are not known: folder={self.path}; "
                "could the sink have a schema, or schema='id long, name string' be given here?"
            )
        return found

    def _load(self, reader: Any, schema: Any | None) -> Any:
        reader = reader.option("pathGlobFilter", self.pattern)
        if schema is not None:
            try:
                reader = reader.schema(schema)
            except PySparkException as error:
                raise OptionError(
                    f"schema cannot be read: schema={shorten(schema)} cause={str(error).strip().splitlines()[0]}, "
                    "is it written like 'id long, name string'?"
                ) from error
        elif self.format == "parquet":
            reader = reader.option("mergeSchema", "true")  # files that were written later may have more columns
        frame = reader.format(_SPARK_FORMATS[self.format]).load(path_to_read(self.path))
        if schema is None and frame.columns == [_NOT_JSON_OBJECTS]:
            raise TailraceError(
                f"rows are no JSON objects, and have no columns: folder={self.path}; "
                "could a map make dicts of them, or did you mean spark.read.text?"
            )
        return frame


def part_folder(sink: Any, pattern: str | None = None) -> PartFolder:
    """The folder of a file sink, or a folder in which there are files of one. Raises OptionError for anything else."""
    if isinstance(sink, FileSink):
        if sink.format not in _SPARK_FORMATS:
            raise OptionError(
                f"files of this kind are not known: type={type(sink).__name__} format={shorten(sink.format)}, "
                f"is it one of {', '.join(_SPARK_FORMATS)}?"
            )
        return PartFolder(sink.path, sink.format, pattern or f"part-*.{sink.format}", sink.schema)
    if not isinstance(sink, str | Path):
        raise OptionError(
            f"not a file sink: sink={shorten(sink)} type={type(sink).__name__}, "
            "did you mean the result of to_parquet(…) or to_jsonl(…), or its folder?"
        )
    path = absolute(sink)
    folders = [PartFolder(path, kind, f"part-*.{kind}", None) for kind in _SPARK_FORMATS]
    found = [folder for folder in folders if folder.holds_files()]
    if len(found) != 1:
        kinds = ",".join(folder.format for folder in found) or "none"
        raise OptionError(
            f"folder does not say what its files are: folder={path} kinds={kinds}, "
            "did you mean the sink itself: tr.to_parquet(…) or tr.to_jsonl(…)?"
        )
    return found[0]


def session_of(spark: Any) -> Any:
    """The session that was given, or the active one. Raises OptionError if there is none, or if it is none."""
    session = active_session() if spark is None else spark
    if session is None and not is_remote():
        session = SparkSession._instantiatedSession
    if session is None:
        raise OptionError("a table needs a Spark session, and none is active: spark=None; is it tr.local_session()?")
    if not (hasattr(session, "read") and hasattr(session, "readStream")):
        raise OptionError(
            f"not a Spark session: spark={shorten(session)} type={type(session).__name__}, did you mean it as sink=…?"
        )
    if getattr(getattr(session, "_sc", None), "_jsc", session) is None:
        raise OptionError("the Spark session has been stopped: could you give another, run.table(spark)?")
    return session
