"""``tailrace bench`` and ``tailrace reproduce``: what they refuse, what they print, and one short real run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tailrace import TailraceError
from tailrace_research.__main__ import main
from tailrace_research.bench.engine import run as engine

COMMAND = [sys.executable, "-m", "tailrace_research"]
BARE_AND_OURS = [
    f"{who}{p}_ms_{rate}" for who in ("", "bare_") for p in ("p50", "p99", "p999") for rate in (1000, 5000)
]
MICRO_BATCHES = [f"spark_{p}_ms_1000" for p in ("p50", "p99", "p999")]
WORDS = ["words_per_s", "cpu_s_per_mwords"]
BYTEWAX = ["bytewax_words_per_s", "bytewax_cpu_s_per_mwords", "bytewax_bundles_words_per_s"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("command", [("bench", "engine"), ("reproduce", "hone"), ("reproduce", "osg")])
def test_help_shows_examples(command: tuple[str, ...]) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert f"\n    tailrace {' '.join(command)}" in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("reproduce", "hone", "--figure", "9"), "'--figure': '9' is not one of '6', '7', '8'"),
        (("reproduce", "osg", "--figure", "3"), "'11', 'late', 'best'."),
        (("reproduce", "du", "--figure", "6"), "'--figure': '6' is not one of '3', '4', '5', 'table2'"),
        (
            ("reproduce", "du", "--testbed", "--figure", "3"),
            "'--figure': '3' is not one of 'table2', 'table3', 'shared",
        ),
        (
            ("reproduce", "osg", "--figure", "12", "--testbed", "--repeats", "0"),
            "'--repeats': 0 is not in the range x>=1",
        ),
        (("reproduce", "osg", "--figure", "12"), "'--figure': '12' is not one of '4', '5', '6'"),
        (
            ("reproduce", "du", "--repeats", "2"),
            "--repeats: only a testbed has it; did you mean --testbed, or --streams?",
        ),
        (("reproduce", "du", "--testbed", "--streams", "2"), "--streams: a testbed is measured on this machine, with"),
        (("reproduce", "hone", "--streams", "0"), "'--streams': 0 is not in the range x>=1"),
        (("reproduce", "hone", "--json", "no/such/f.json"), "--json: no such folder: "),
        (("bench", "engine", "--host", "storm"), "'--host': 'storm' is not one of 'spark', 'process'"),
        (("bench", "engine", "--repeats", "0"), "'--repeats': 0 is not in the range x>=1"),
        (("bench", "engine", "--sentences", "1"), "'--sentences': 1 is not in the range x>=1000"),
        (("bench", "engine", "--json", "/no/such/folder/f.json"), "--json: no such folder: /no/such/folder"),
    ],
)
def test_bad_options_are_named(arguments: tuple[str, ...], expected: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert expected in result.output


def test_a_study_without_a_testbed_says_which_have_one() -> None:
    result = invoke("reproduce", "turbostream", "--testbed")
    assert result.exit_code == 1
    assert "no testbed figures: study=turbostream: did you mean one of du," in result.output


# --- bench engine


def result_of(repeats: int = 3, without: str = "nothing") -> dict[str, Any]:
    keys = [*BARE_AND_OURS, *MICRO_BATCHES, *WORDS, *BYTEWAX, "bytewax_bundles_cpu_s_per_mwords"]
    samples = {key: [float(number + 1) for number in range(repeats)] for key in keys if not key.startswith(without)}
    facts = {
        "host": "spark",
        "repeats": repeats,
        "sentences": 1000,
        "seconds": 1.0,
        "cores": 2,
        "python": "3.11",
        "load_before": 0.5,
    }
    return {**engine.summarise(samples), **facts}


def test_the_summary_has_medians_and_all_repeats() -> None:
    assert engine.summarise({"p50_ms_1000": [3.0, 1.0, 2.0]}) == {
        "p50_ms_1000": 2.0,
        "p50_ms_1000_spread": [3.0, 1.0, 2.0],
    }


def test_the_table_has_ratios_and_ranges() -> None:
    table = engine.render_table(result_of())
    assert re.search(r"^Tailrace / Bytewax +1\.00 x +1\.00 x$", table, re.MULTILINE)
    assert re.search(r"^Tailrace at 5,000/s +2\.00  \[1\.00\.\.3\.00\] ", table, re.MULTILINE)
    assert re.search(r"^Spark micro-batches at 1,000/s +2\.00  \[1\.00\.\.3\.00\] ", table, re.MULTILINE)
    assert re.search(r"^micro-batches / Tailrace +1 x +1 x +1 x$", table, re.MULTILINE)
    assert "few repeats" not in table


def test_the_table_does_without_spark() -> None:
    assert "icro-batches" not in engine.render_table(result_of(without="spark"))


def test_the_table_does_without_bytewax_and_warns_of_few_repeats() -> None:
    table = engine.render_table(result_of(repeats=1, without="bytewax"))
    assert "Tailrace / Bytewax" not in table
    assert "few repeats" in table


@pytest.mark.parametrize("spark", [None, object()], ids=["process", "spark"])
def test_contenders_take_turns(monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    order: list[str] = []
    hosts: list[object] = []

    def words(total: int, host: object, *, ring: bool = True) -> dict[str, float]:
        order.append("words" if ring else "tcp words")
        hosts.append(host)
        return {"words_per_s": 1.0, "cpu_s": 1.0, "words": 1}

    def hops(name: str, rate: int) -> dict[str, float]:
        order.append(f"{name} {rate}")
        return {"p50_ms": 1.0, "p99_ms": 1.0, "p999_ms": 1.0}

    def our_hops(rate: int, seconds: float, host: object, *, ring: bool = True) -> dict[str, float]:
        hosts.append(host)
        return {**hops("hops" if ring else "tcp hops", rate), "cpu_us": 1.0}

    monkeypatch.setattr(engine, "run_words", words)
    monkeypatch.setattr(engine, "run_hops", our_hops)
    monkeypatch.setattr(engine, "run_bare_hops", lambda rate, seconds: hops("bare", rate))
    monkeypatch.setattr(engine, "run_spark_query", lambda host, rate, seconds: hops("query", rate))
    monkeypatch.setattr(engine, "why_unavailable", lambda: "bytewax is not installed")
    said: list[str] = []
    result = engine.run_engine_benchmark(engine.Sizes(1000, 1.0, 2), said.append, spark)
    query = [] if spark is None else ["query 1000"]
    slow, fast = (["hops 1000", "tcp hops 1000", "bare 1000"], ["hops 5000", "tcp hops 5000", "bare 5000"])
    assert order == ["words", "tcp words", *slow, *query, *fast] * 2
    assert set(hosts) == {spark}
    assert said[0] == "the comparison with Bytewax is skipped: bytewax is not installed"
    assert len(said) == 1 + len(order)
    assert "tcp_words_per_s" in result and "tcp_cpu_us_5000" in result
    assert "bytewax_words_per_s" not in result
    assert ("spark_p50_ms_1000" in result) == (spark is not None)
    assert result["host"] == ("process" if spark is None else "spark")


def test_an_error_is_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sizes: engine.Sizes, say: engine.Say, spark: object) -> dict[str, Any]:
        raise TailraceError("hops did not finish: rate=5000")

    monkeypatch.setattr(engine, "run_engine_benchmark", fail)
    result = invoke("bench", "engine", "--host", "process")
    assert result.exit_code == 1
    assert result.output == "Error: hops did not finish: rate=5000\n"


def test_bench_engine_really(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    options = ["--host", "process", "--sentences", "2000", "--seconds", "1", "--repeats", "1", "--json", str(file)]
    done = subprocess.run([*COMMAND, "bench", "engine", *options], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    keys = [*BARE_AND_OURS, *WORDS]
    if "is skipped" not in done.stderr:
        keys += BYTEWAX
        assert "Tailrace / Bytewax" in done.stdout
    for key in keys:
        assert figures[key] > 0, key
        assert figures[f"{key}_spread"] == [figures[key]], key
    assert figures["cores"] == os.cpu_count()
    assert figures["python"].startswith("3.")
