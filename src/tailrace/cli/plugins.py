"""Subcommands that other distributions add to ``tailrace``, by entry points of the group ``tailrace.commands``.

The name of an entry point is the name of the subcommand, and its object is a click command. One that cannot be loaded
fails with the reason when it is called, and does not affect the others.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

from tailrace.errors import headline

GROUP = "tailrace.commands"
ADDED_BY = {"bench": "tailrace-research", "reproduce": "tailrace-research"}
"""Documented subcommands of other distributions, for a message that says what to install."""


class Unavailable(click.ClickException):
    """A subcommand that is not installed or cannot be loaded. It has the exit code of a usage error."""

    exit_code = 2


class PluginGroup(click.Group):
    """The subcommands of this package and of entry points. If both have a name, this package's wins."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_plugins()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        plugin = _plugins().get(cmd_name)
        if plugin is not None:
            return _load(plugin)
        if cmd_name in ADDED_BY:
            return _refusing(cmd_name, f"tailrace {cmd_name} is not installed: pip install {ADDED_BY[cmd_name]}")
        return None


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(plugin: EntryPoint) -> click.Command:
    try:
        command = plugin.load()
    except Exception as error:  # an import may raise anything, and must not affect the other subcommands
        return _broken(plugin, f"{type(error).__name__}: {headline(error)}")
    return command if isinstance(command, click.Command) else _broken(plugin, f"not a click command: {command!r}")


def _broken(plugin: EntryPoint, why: str) -> click.Command:
    return _refusing(plugin.name, f"tailrace {plugin.name} could not be loaded: {plugin.value}: {why}")


def _refusing(name: str, why: str) -> click.Command:
    """A subcommand that accepts any arguments, prints why it cannot run, and exits with code 2."""

    def refuse(arguments: tuple[str, ...]) -> None:
        raise Unavailable(why)

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        short_help="(could not be loaded)",
    )
