"""A registry of what runs topologies. Layers that know processes and Spark register here; this one knows neither."""

from __future__ import annotations

from typing import Any, Protocol, Unpack

from tailrace.errors import TopologyError
from tailrace.topology.options import ApplyOptions, RunOptions
from tailrace.topology.run import Run


class SparkSession(Protocol):
    """The part of a classic ``pyspark.sql.SparkSession`` that ``run`` needs."""

    @property
    def sparkContext(self) -> Any: ...


class DataFrame(Protocol):
    """The part of a classic ``pyspark.sql.DataFrame`` that ``apply`` needs."""

    @property
    def schema(self) -> Any: ...

    @property
    def isStreaming(self) -> bool: ...

    @property
    def sparkSession(self) -> Any: ...


class StructType(Protocol):
    """The part of a ``pyspark.sql.types.StructType`` that ``apply`` needs."""

    def fieldNames(self) -> list[str]: ...


class Launcher(Protocol):
    """Starts a ``Topology`` on a Spark session, or without one, and returns the handle of the run."""

    def __call__(self, topology: Any, spark: Any, /, **options: Unpack[RunOptions]) -> Run: ...


class Applier(Protocol):
    """Runs a ``Topology`` on the rows of a DataFrame to its end, and returns the rows of its output as another."""

    def __call__(self, topology: Any, df: Any, schema: Any, /, **options: Unpack[ApplyOptions]) -> Any: ...


_launcher: Launcher | None = None
_applier: Applier | None = None


def set_launcher(launcher: Launcher | None) -> None:
    """Say who runs topologies from now on."""
    global _launcher
    _launcher = launcher


def set_applier(applier: Applier | None) -> None:
    """Say who applies topologies to DataFrames from now on."""
    global _applier
    _applier = applier


def the_launcher(topology: str) -> Launcher:
    """The function that runs topologies. ``topology`` is the name of one that is about to run."""
    if _launcher is None:
        raise TopologyError(
            f"nothing can run a topology yet: topology={topology} launcher=None: did you forget import tailrace?"
        )
    return _launcher


def the_applier(topology: str) -> Applier:
    """The function that applies topologies to DataFrames."""
    if _applier is None:
        raise TopologyError(
            f"nothing can apply a topology yet: topology={topology} applier=None: did you forget import tailrace?"
        )
    return _applier
