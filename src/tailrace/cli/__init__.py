"""The ``tailrace`` command. This package only parses and checks options; other packages act on them."""

from __future__ import annotations

import click

from tailrace import __version__
from tailrace.cli.plugins import PluginGroup
from tailrace.cli.running import run
from tailrace.cli.showing import demo, doctor
from tailrace.cli.simulating import what_if


@click.group(cls=PluginGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tailrace")
def main() -> None:
    """Python stream topologies on Spark executors, record by record, with a short latency tail.

    \b
    New here?
      tailrace demo               watch a word count survive the loss of a worker
      tailrace run words.py       run the topology in a file
      tailrace doctor             something is wrong: find out what
    """


for command in (run, demo, doctor, what_if):
    main.add_command(command)
