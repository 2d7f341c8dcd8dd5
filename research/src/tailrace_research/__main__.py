"""``python -m tailrace_research``: this distribution's commands, also where it is on the path but not installed."""

from __future__ import annotations

import click

from tailrace_research.cli.bench import bench
from tailrace_research.cli.reproduce import reproduce


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Benchmarks, and the papers' studies: what ``tailrace bench`` and ``tailrace reproduce`` run."""


for command in (bench, reproduce):
    main.add_command(command)

if __name__ == "__main__":
    main()
