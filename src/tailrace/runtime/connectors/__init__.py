"""The sources and sinks that come with Tailrace. Each file has one, with the function that makes it."""

from tailrace.runtime.connectors.call import to_call
from tailrace.runtime.connectors.collect import to_list
from tailrace.runtime.connectors.iterable import from_iterable
from tailrace.runtime.connectors.jsonl import to_jsonl
from tailrace.runtime.connectors.lines import from_lines
from tailrace.runtime.connectors.parquet import to_parquet
from tailrace.runtime.connectors.rate import at_rate

__all__ = ["at_rate", "from_iterable", "from_lines", "to_call", "to_jsonl", "to_list", "to_parquet"]
