"""Which sink of a run a table is read from, and whether the driver can see its files."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.connector import FileSink
from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.errors import OptionError, TailraceError, did_you_mean, shorten
from tailrace.runtime.connectors.commits.files import home_of
from tailrace.topology import Role

TableReader = Callable[[Any, FileSink, str, Any], Any]
"""Called with (session or None, sink, what names of files match, schema or None), gives a DataFrame."""


def choose_file_sink(plan: Plan, name: str | None) -> OperatorPlan:
    """The sink of this name, or the only one that writes files. Raises OptionError if there is none."""
    sinks = {op.name: op for op in plan.operators if op.operator.role is Role.SINK}
    with_files = [name for name, op in sinks.items() if isinstance(op.operator.body, FileSink)]
    if name is None:
        if len(with_files) > 1:
            raise OptionError(
                f"several sinks write files: run={plan.name} sinks={','.join(with_files)}: "
                f"did you mean run.table(sink={with_files[0]!r})?"
            )
        name = (with_files or list(sinks))[0]
    if not isinstance(name, str) or name not in sinks:
        raise OptionError(f"no such sink: run={plan.name} sink={shorten(name)}: {did_you_mean(name, sinks)}")
    if name not in with_files:
        raise OptionError(
            f"sink writes no files: run={plan.name} sink={name} type={type(sinks[name].operator.body).__name__}: "
            "did you mean to_parquet(…) or to_jsonl(…), or, for to_list, spark.createDataFrame(sink.values)?"
        )
    return sinks[name]


def check_visible(sink: OperatorPlan, job_id: str, progress: Mapping[str, Any] | None) -> None:
    """Raise TailraceError if rows are durable and the driver sees nothing of them: a table would be empty."""
    folder = sink.operator.body.path
    if progress is not None and progress["durable"] and not home_of(folder, sink.name, job_id).is_dir():
        raise TailraceError(
            f"the driver does not see what the sink has written: sink={sink.name} folder={folder} "
            f"host={socket.gethostname()}; is the file system mounted here, or was the folder deleted?"
        )
