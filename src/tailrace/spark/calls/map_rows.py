"""``tr.map_rows``: a step of a DataFrame that calls a function for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from tailrace.calls import Calls
from tailrace.calls.keywords import answers_unknown
from tailrace.calls.options import OPTIONS
from tailrace.errors import OptionError, shorten
from tailrace.spark.calls.bodies import check_function, name_of
from tailrace.spark.calls.caller import step_key
from tailrace.spark.calls.declared import analysis_refused, nullable, parse, parse_early, refuse_types, user_defined
from tailrace.spark.calls.driver import is_connect, task_calls
from tailrace.spark.calls.observed import MARK, marked, observation_name, observe
from tailrace.spark.calls.options import check_calls, check_journal_key
from tailrace.spark.calls.row_step import ATTEMPTS, ERROR, CalledRows, PlainRows
from tailrace.spark.calls.rows import finished
from tailrace.topology.body import is_async


@answers_unknown("tr.map_rows", OPTIONS)
def map_rows(
    function: Callable[..., Any],
    schema: str | StructType,
    *,
    calls: Calls | None = None,
    ordered: bool = False,
    observation: Any = None,
) -> Callable[[DataFrame], DataFrame]:
    """Make a step for ``df.transform`` that calls a function for each row and gives the rows that it returns.

    The function runs in the Python process of each Spark task. With ``calls``, many calls are under way at once, and a
    slow one does not hold up the others. This works on classic sessions, on Spark Connect and in streaming queries. In
    Declarative Pipelines Spark has no such step: use ``tr.udf`` there.

    Args:
        function: takes a row, and returns None, a row, or a list or iterator of rows. The row that it takes has its
            columns as attributes, ``row.id``, and by name, ``row["id"]``; ``row.asDict()`` makes a dict. A row that it
            returns is a dict, a tuple or a ``Row``. It may be a coroutine function, or a class with a ``process``
            method and perhaps ``open`` and ``close``, of which each task makes one object.
        schema: the columns of the returned rows, such as ``"id long, name string"``.
        calls: how calls are made. Without it, a plain function is called row by row; a coroutine function is called as
            ``tr.Calls()`` says. ``on_error="column"`` adds the columns ``error`` and ``attempts``. In a row that stands
            for a failed call, columns that the input has too keep their value, and all others are null.
        ordered: whether rows come out in the order in which they went in. It costs time where calls differ in length.
        observation: a name, or an ``Observation``, under which Spark reports the figures of the calls, as
            ``df.observe`` does. Without it, the name is that of the function; the second step of that name in a session
            is ``name_2``, and so on, because Spark refuses a plan with two observations of one name.

    Example:
        >>> def words(row):
        ...     return [{"id": row.id, "word": word} for word in row.text.split()]
        >>> df = spark.createDataFrame([(1, "so it goes"), (2, "")], "id long, text string")
        >>> df.transform(tr.map_rows(words, "id long, word string")).collect()
        [Row(id=1, word='so'), Row(id=1, word='it'), Row(id=1, word='goes')]
    """
    check_function(function, "function", several=False)
    if not isinstance(ordered, bool):
        raise OptionError(f"ordered is neither True nor False: ordered={shorten(ordered)}: did you mix two up?")
    options = check_calls(calls)
    if options is None and is_async(function):
        options = Calls()
    name = name_of(function)
    what = f"map_rows={name} schema"
    early = parse_early(schema, what)
    if isinstance(early, DataType):
        _columns(early, what)

    def step(df: DataFrame) -> DataFrame:
        declared = _columns(early, what)
        types = _known_types(df)
        if options is None:
            return _map_in_arrow(df, PlainRows(function, name, declared, types), declared)
        _refuse_added(declared, options)
        if not is_connect(df):  # where asking for the columns is a round trip: there each task looks
            check_journal_key(name, options, df.columns)
        key = step_key("map_rows", function, declared, options)
        making = task_calls(df.sparkSession, function, name, options, key, finished)
        returned = nullable(declared)
        added = [StructField(ERROR, StringType()), StructField(ATTEMPTS, IntegerType())]
        whole = StructType([*returned.fields, *(added if options.on_error == "column" else [])])
        mapped = _map_in_arrow(df, CalledRows(making, declared, types, ordered), marked(whole))
        return observe(mapped, observation_name(df.sparkSession, name, observation))

    return step


def _map_in_arrow(df: DataFrame, task: Any, schema: StructType) -> DataFrame:
    """Spark's own step. On Spark Connect it asks the server for the columns, which a pipeline does not answer."""
    try:
        return df.mapInArrow(task, schema)
    except PySparkException as error:
        if not analysis_refused(error):
            raise
        raise OptionError(
            "Spark maps no frames in a pipeline's query function, neither with mapInArrow nor with map_rows: "
            f"columns={','.join(schema.names)}: could it be explode(…) of a tr.udf that returns an array?"
        ) from None


def _columns(schema: str | DataType, what: str) -> StructType:
    kind = parse(schema, what)
    if not isinstance(kind, StructType):
        shown = kind.simpleString()
        raise OptionError(f"not columns: {what}={shown}: did you mean names and types, such as 'id long, name string'?")
    return kind


def _refuse_added(schema: StructType, options: Calls) -> None:
    taken = {MARK} | ({ERROR, ATTEMPTS} if options.on_error == "column" else set())
    for name in schema.names:
        if name.lower() in taken:
            raise OptionError(
                f"a column has the name of one that is added: column={name} on_error={options.on_error}: "
                "could it have another?"
            )


def _known_types(df: DataFrame) -> list[Any]:
    """Types of columns that Arrow does not tell. On Spark Connect they are not asked for: that is a round trip."""
    if is_connect(df):
        return []
    for field in df.schema:
        try:
            refuse_types(field.dataType, "type", field.name)
        except OptionError as error:
            if "year-month" in str(error):
                raise
    return user_defined(df.schema)
