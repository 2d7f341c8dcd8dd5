"""Running a topology on the executors of a Spark session."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from tailrace.connector import FileSink
from tailrace.errors import OptionError, TopologyError, did_you_mean
from tailrace.policy.hedging.by_name import named_hedge
from tailrace.policy.send_order.by_name import named_send
from tailrace.policy.techniques import Tail
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import LOOPBACK, Place, why_not_bind
from tailrace.runtime.options import RunSettings
from tailrace.spark.connectors.tables import committed_table
from tailrace.spark.encryption import with_encryption
from tailrace.spark.host import SparkHost
from tailrace.spark.slots import HELD, is_local, total_slots
from tailrace.topology import RunOptions, Topology

PREFIX = "spark.tailrace."
EVERYWHERE = "0.0.0.0"
HOST, BIND = "spark.driver.host", "spark.driver.bindAddress"

logger = logging.getLogger("tailrace")

TECHNIQUES: dict[str, Callable[[str], Any]] = {
    "hedge": named_hedge,
    "replay": named_hedge,
    "shared_queues": str,
    "send": named_send,
}
"""Settings of the Spark configuration that make up a ``Tail``."""

CONNECT = (
    "Spark Connect cannot host workers: it has no way to reach executors; could you use a classic SparkSession, or "
    "tr.udf and tr.map_rows, which run in Spark's own tasks?"
)
STOPPED = "the Spark session has been stopped: workers need one that runs; was spark.stop() called?"


def launch_on_spark(topology: Topology, spark: Any, options: RunOptions) -> HostedRun:
    check_session(spark)
    conf, master = configuration(spark), spark.sparkContext.master
    return start_on_spark(topology, spark, settings_of(master, conf, options), place_of(master, conf))


def start_on_spark(topology: Topology, spark: Any, chosen: RunSettings, place: Place) -> HostedRun:
    """Start a run whose settings and place are known."""
    context = spark.sparkContext
    HELD.take(context.applicationId, chosen.workers, slots_of(spark), context.master)
    host = SparkHost(spark, uuid.uuid4().hex[:8], topology.name, chosen.workers)
    try:
        return HostedRun(topology, chosen, host, place, partial(_read_table, spark))
    except BaseException:
        host.close()
        raise


def _read_table(own: Any, spark: Any, sink: FileSink, pattern: str, schema: Any) -> Any:
    """The part of ``Run.table`` that needs Spark, with the run's own session by default."""
    return committed_table(own if spark is None else spark, sink, pattern, schema)


def check_session(spark: Any) -> None:
    """Raise TopologyError if this session cannot host workers."""
    kind = type(spark)
    if "connect" in kind.__module__.split("."):
        raise TopologyError(CONNECT)
    if not hasattr(spark, "sparkContext"):
        raise TopologyError(f"not a Spark session: type={kind.__module__}.{kind.__qualname__}; did you mean workers=?")
    if spark.sparkContext._jsc is None:
        raise TopologyError(STOPPED)


def configuration(spark: Any) -> dict[str, str]:
    """The whole configuration of a session, including what was set after its start."""
    return {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}


def slots_of(spark: Any) -> int | None:
    """How many tasks the session's executors can run at a time; None if that is not known."""
    context = spark.sparkContext
    processors = int(context._jvm.java.lang.Runtime.getRuntime().availableProcessors())
    return total_slots(context.master, configuration(spark), processors)


def free_slots(spark: Any) -> int | None:
    """How many of them no run of this process holds; None if that is not known."""
    total = slots_of(spark)
    return None if total is None else max(0, total - HELD.count(spark.sparkContext.applicationId))


# -- options


def options_of(conf: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given in the session's configuration, or, which goes before that, in a call."""
    given = {name: value for name, value in options.items() if value is not None}
    return {**options_in(conf), **given}


def settings_of(master: str, conf: Mapping[str, str], options: Mapping[str, Any]) -> RunSettings:
    """The options asked for, in the configuration or as arguments, checked."""
    return with_encryption(RunSettings.of(options_of(conf, options)), master, conf)


def options_in(conf: Mapping[str, str]) -> dict[str, Any]:
    """Run options from the Spark configuration: ``spark.tailrace.maxPending`` sets ``max_pending``."""
    kinds = {field.name: str(field.type) for field in fields(RunSettings) if field.name != "tail"}
    found: dict[str, Any] = {}
    techniques: dict[str, Any] = {}
    for key, text in sorted(conf.items()):
        if not key.startswith(PREFIX):
            continue
        name = re.sub(r"(?<=[a-z])([A-Z])", lambda match: "_" + match[1].lower(), key.removeprefix(PREFIX))
        if name in TECHNIQUES:
            techniques[name] = TECHNIQUES[name](text)
            continue
        name = name if name in kinds else f"{name}_s"
        if name not in kinds:
            hint = did_you_mean(key, sorted(PREFIX + _camel(kind) for kind in [*kinds, *TECHNIQUES]))
            raise OptionError(f"unknown option in the Spark configuration: {key}={text}: {hint}")
        found[name] = _parse(key, text, kinds[name])
    return {**found, "tail": Tail(**techniques)} if techniques else found


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name.removesuffix("_s"))


def _parse(key: str, text: str, kind: str) -> Any:
    if "str" in kind or kind.startswith("Literal"):
        return text
    if kind.startswith("bool"):
        if text.lower() not in ("true", "false"):
            raise OptionError(f"option in the Spark configuration is neither true nor false: {key}={text}")
        return text.lower() == "true"
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        raise OptionError(f"option in the Spark configuration is not a number: {key}={text}") from None


# -- where the coordinator listens


def place_of(master: str, conf: Mapping[str, str]) -> Place:
    """Where executors reach the driver.

    If that address is not one of this machine, listen on all interfaces, with a warning.
    """
    if is_local(master):
        return LOOPBACK
    address = conf.get(HOST, "127.0.0.1")
    bind = conf.get(BIND, address)
    why_not = why_not_bind(bind)
    if why_not is None:
        return Place(bind, address)
    if ":" in bind:
        raise OptionError(f"the driver listens on IPv4 only: address={bind}; could {BIND} be an IPv4 address?")
    if BIND in conf:
        raise OptionError(f"the driver cannot listen: {BIND}={bind} cause={why_not}; is it one of this machine's?")
    logger.warning(
        "the driver listens on all addresses: %s=%s is not one of this machine's (%s); should %s say which?",
        *(HOST, bind, why_not, BIND),
    )
    return Place(EVERYWHERE, address)
