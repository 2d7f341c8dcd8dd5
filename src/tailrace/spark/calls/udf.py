"""``tr.udf``: a function that is used like a column function and makes its calls well."""

from __future__ import annotations

import asyncio
import inspect
import threading
import warnings
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import Column, SparkSession
from pyspark.sql.types import DataType
from pyspark.sql.utils import is_remote

from tailrace.calls import Calls
from tailrace.calls.keywords import answers_unknown
from tailrace.calls.options import OPTIONS
from tailrace.errors import OptionError, TailraceError, shorten
from tailrace.runtime.calls.figures import Figures
from tailrace.spark.calls.bodies import Body, check_function, name_of, parameters_of
from tailrace.spark.calls.caller import step_key
from tailrace.spark.calls.column_step import CalledColumn, PlainColumn, column_type
from tailrace.spark.calls.declared import active_session, check_given, parse, parse_early
from tailrace.spark.calls.driver import task_calls
from tailrace.spark.calls.options import check_calls
from tailrace.topology.body import is_async


@answers_unknown("tr.udf", OPTIONS)
def udf(schema: str | DataType, *, calls: Calls | None = None) -> Callable[[Callable[..., Any]], Udf]:
    """Make a column function of a function, a coroutine function, or a class with a ``process`` method.

    The function runs in the Python process of each Spark task. With ``calls``, many calls are under way at once, and a
    slow one does not hold up the others. Rows keep their order. Such a column counts as nondeterministic, so that Spark
    does not make the calls a second time for a filter on their results.

    In a Declarative Pipeline, declare it in front of the query function that uses it.

    Called with column names or columns it gives a column. Called with plain values it runs at once. While a Spark
    session is active, a string is a column name; ``.func`` is the function itself.

    Args:
        schema: the type of the result, such as ``"double"``. Several fields, ``"label string, score double"``, are a
            struct, for which the function returns a tuple, a dict or a ``Row``.
        calls: how calls are made. Without it, a plain function is called row by row; a coroutine function is called as
            ``tr.Calls()`` says. ``on_error="column"`` gives a struct of value, error and attempts, ``"skip"`` null.
            ``journal_key`` names a parameter of the function.

    Example:
        >>> @tr.udf("label string, score double", calls=tr.Calls(concurrency=8, timeout_s=5, on_error="column"))
        ... async def classify(text):
        ...     return ("long" if len(text) > 5 else "short"), len(text) / 10
        >>> df = spark.createDataFrame([(1, "wave"), (2, "particle")], "id long, text string")
        >>> df.select("id", classify("text").alias("c")).select("id", "c.value.label", "c.error").collect()
        [Row(id=1, label='short', error=None), Row(id=2, label='long', error=None)]
    """
    check_given(schema, "udf schema")
    options = check_calls(calls)

    def decorate(function: Callable[..., Any]) -> Udf:
        return Udf(function, schema, options)

    return decorate


class Udf:
    """A column function. ``tr.udf(…)`` makes one."""

    def __init__(self, function: Any, schema: str | DataType, calls: Calls | None) -> None:
        check_function(function, "function", several=True)
        self.func = function
        self._calls = Calls() if calls is None and is_async(function) else calls
        self._name = name_of(function)
        self._what = f"udf={self._name} schema"
        self._schema = parse_early(schema, self._what)
        self._parameters = parameters_of(function)
        self._made: dict[Any, tuple[Any, Accumulator[Figures] | None]] = {}
        self._check_journal_key()
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A column, if the arguments are columns or names of columns, else the result for these values."""
        given = [*args, *kwargs.values()]
        columns = [isinstance(one, Column) or (isinstance(one, str) and active_session() is not None) for one in given]
        if not any(columns):
            return self._at_once(args, kwargs)
        if not all(columns):
            plain = given[columns.index(False)]
            raise OptionError(
                f"a column and a plain value: function={self._name} value={shorten(plain)}: "
                "did you mean pyspark.sql.functions.lit(…)?"
            )
        placed = self._by_place(args, kwargs)
        key = None if self._calls is None else self._calls.journal_key
        if key is not None and key not in self._parameters[: len(placed)]:
            raise OptionError(f"journal_key is not given: function={self._name} journal_key={key}: is it optional?")
        return self._in_spark()(*placed)

    def figures(self) -> Figures:
        """The figures of all tasks that have made their calls so far, in this Spark session.

        They are counted on classic sessions. On Spark Connect, use ``tr.map_rows``: Spark itself reports its figures.
        """
        if is_remote():
            raise TailraceError(
                f"figures of a column are not known on Spark Connect: function={self._name}: could it be tr.map_rows, "
                "whose figures Spark observes?"
            )
        session = active_session()
        counted = None if session is None else self._made.get(_place(session), (None, None))[1]
        return Figures() if counted is None else counted.value

    def __repr__(self) -> str:
        return f"Udf({self._name})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the UDFs of PySpark, which belong to a session: a used function can be part of another step."""
        return {**self.__dict__, "_made": {}}

    # -- as a column

    def _in_spark(self) -> Any:
        """PySpark's own UDF, made once for each session: types can be parsed only where there is one."""
        session = active_session()
        assert session is not None
        place = _place(session)
        if place not in self._made:
            self._made[place] = self._make(session)
        return self._made[place][0]

    def _make(self, session: SparkSession) -> tuple[Any, Accumulator[Figures] | None]:
        from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

        kind = parse(self._schema, self._what)
        counted: Accumulator[Figures] | None = None
        step: PlainColumn | CalledColumn
        if self._calls is None:
            step, whole = PlainColumn(self.func, self._name, kind, self._parameters), kind
        else:
            if not is_remote():
                counted = session.sparkContext.accumulator(Figures(), AddFigures())
            key = step_key("udf", self.func, kind, self._calls)
            making = task_calls(session, self.func, self._name, self._calls, key)
            report = None if counted is None else counted.add
            step = CalledColumn(making, kind, self._parameters, report)
            whole = column_type(kind, self._calls.on_error)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PySpark would have type hints say what kind it is
            made: Any = arrow_udf(step, whole, ArrowUDFType.SCALAR_ITER)  # type: ignore[call-overload]
        return (made if self._calls is None else made.asNondeterministic()), counted

    def _by_place(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if not kwargs:
            return list(args)
        try:
            bound = inspect.signature(self.func).bind(*args, **kwargs)
        except TypeError as error:
            raise OptionError(f"arguments do not fit: function={self._name}: {error}") from None
        if bound.kwargs:
            raise OptionError(
                f"an argument has no place: function={self._name} argument={next(iter(bound.kwargs))}: "
                "could you give it by position?"
            )
        return list(bound.args)

    def _check_journal_key(self) -> None:
        key = None if self._calls is None else self._calls.journal_key
        if key is not None and key not in self._parameters:
            raise OptionError(
                f"journal_key is no parameter of the function: function={self._name} journal_key={key}: "
                f"did you mean one of {', '.join(self._parameters)}?"
            )

    # -- with plain values

    def _at_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        async def run() -> Any:
            body = Body(self.func, self._name)
            await body.open()
            try:
                result = body.function(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result
            finally:
                await body.close()

        return _run_beside(run)


def _run_beside(run: Callable[[], Any]) -> Any:
    """Run a coroutine function to its result, in a thread of its own if this one has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    results: list[Any] = []
    errors: list[BaseException] = []

    def beside() -> None:
        try:
            results.append(asyncio.run(run()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=beside, name="tailrace-udf")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class AddFigures(AccumulatorParam[Figures]):
    """How Spark adds the figures of tasks."""

    def zero(self, value: Figures) -> Figures:
        return Figures()

    def addInPlace(self, value1: Figures, value2: Figures) -> Figures:
        value1.merge(value2)
        return value1


def _place(session: SparkSession) -> Any:
    """The object to which a UDF of PySpark is bound: the context, or the session of Spark Connect."""
    return id(session) if is_remote() else session.sparkContext.applicationId
