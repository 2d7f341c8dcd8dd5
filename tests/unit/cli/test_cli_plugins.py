"""Subcommands of other distributions: found by entry points, told when they are missing or broken."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tailrace.cli import main, plugins

OWN = ["demo", "doctor", "run", "sim"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of distributions, and the only one in which entry points are looked for."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = plugins.entry_points

    def only_here(group: str) -> list[object]:
        return [point for point in found(group=group) if point.dist and point.dist.name.startswith("plugin-")]

    monkeypatch.setattr(plugins, "entry_points", only_here)
    return tmp_path


def install(site: Path, name: str, value: str) -> None:
    folder = site / f"plugin_{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin-{name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[tailrace.commands]\n{name} = {value}\n")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def listed() -> list[str]:
    text = invoke("--help").output
    return re.findall(r"^  (\w+)", text[text.index("Commands:") :], re.MULTILINE)


def test_without_plugins_the_command_lists_its_own(site: Path) -> None:
    assert listed() == OWN


@pytest.mark.parametrize("arguments", [("bench",), ("bench", "--help"), ("reproduce", "du", "--testbed")])
def test_what_another_distribution_brings_is_named_in_one_sentence(site: Path, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.output == f"Error: tailrace {arguments[0]} is not installed: pip install tailrace-research\n"


def test_a_plugin_is_a_command_like_others(site: Path) -> None:
    (site / "plugged_in.py").write_text(
        "import click\n@click.command()\n@click.option('--times', default=1)\n"
        'def greet(times):\n    "Say hello."\n    click.echo("hello " * times)\n'
    )
    install(site, "greet", "plugged_in:greet")
    assert listed() == sorted([*OWN, "greet"])
    assert invoke("greet", "--times", "2").output == "hello hello \n"
    assert invoke("greet", "--time", "2").exit_code == 2


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise ImportError('no module named nothing')", "ImportError: no module named nothing"),
        ("bench = 3", "not a click command: 3"),
        ("", "AttributeError: module 'plugged_broken' has no attribute 'bench'"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_breaks_no_other_command(
    site: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    monkeypatch.delitem(sys.modules, "plugged_broken", raising=False)
    (site / "plugged_broken.py").write_text(code)
    install(site, "bench", "plugged_broken:bench")
    result = invoke("bench", "engine", "--json", "figures.json")
    assert result.exit_code == 2
    assert result.output == f"Error: tailrace bench could not be loaded: plugged_broken:bench: {why}\n"
    assert listed() == sorted([*OWN, "bench"])
    assert invoke("sim", "--help").exit_code == 0


def test_a_plugin_does_not_replace_a_command_of_the_engine(site: Path) -> None:
    install(site, "run", "click:Command")
    assert main.get_command(click.Context(main), "run") is main.commands["run"]
