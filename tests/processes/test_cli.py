"""The command line: what it refuses, what it prints, and one short real run of each command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tailrace
from tailrace import TailraceError, demo
from tailrace.bench import engine
from tailrace.cli import main

TAILRACE = [sys.executable, "-m", "tailrace.cli"]
BARE_AND_OURS = [
    f"{who}{p}_ms_{rate}" for who in ("", "bare_") for p in ("p50", "p99", "p999") for rate in (1000, 5000)
]
WORDS = ["words_per_s", "cpu_s_per_mwords"]
BYTEWAX = ["bytewax_words_per_s", "bytewax_cpu_s_per_mwords", "bytewax_bundles_words_per_s"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_version_and_help() -> None:
    assert invoke("--version").output == f"tailrace, version {tailrace.__version__}\n"
    result = invoke("--help")
    assert result.exit_code == 0
    assert "demo" in result.output
    assert "bench" in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("demo", "--workers", "0"), "'--workers': 0 is not in the range 1<=x<=64"),
        (("demo", "--seconds", "0.1"), "'--seconds': 0.1 is not in the range x>=1.0"),
        (("bench", "engine", "--host", "spark"), "'--host': 'spark' is not 'process'"),
        (("bench", "engine", "--repeats", "0"), "'--repeats': 0 is not in the range x>=1"),
        (("bench", "engine", "--sentences", "1"), "'--sentences': 1 is not in the range x>=1000"),
        (("bench", "engine", "--json", "/no/such/folder/f.json"), "--json: no such folder: /no/such/folder"),
        (("nonsense",), "No such command 'nonsense'"),
    ],
)
def test_bad_options_are_named(arguments: tuple[str, ...], expected: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert expected in result.output


def test_demo_does_not_mix_its_output_with_another(tmp_path: Path) -> None:
    (tmp_path / "part-old.jsonl").write_text("{}\n")
    result = invoke("demo", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert f"--out: folder is not empty: {tmp_path}; is it the output of an earlier run?" in result.output


# --- bench engine


def result_of(repeats: int = 3, without: str = "nothing") -> dict[str, Any]:
    keys = [*BARE_AND_OURS, *WORDS, *BYTEWAX, "bytewax_bundles_cpu_s_per_mwords"]
    samples = {key: [float(number + 1) for number in range(repeats)] for key in keys if not key.startswith(without)}
    facts = {"repeats": repeats, "sentences": 1000, "seconds": 1.0, "cores": 2, "python": "3.11", "load_before": 0.5}
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
    assert "few repeats" not in table


def test_the_table_does_without_bytewax_and_warns_of_few_repeats() -> None:
    table = engine.render_table(result_of(repeats=1, without="bytewax"))
    assert "Tailrace / Bytewax" not in table
    assert "few repeats" in table


def test_contenders_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def words(name: str) -> dict[str, float]:
        order.append(name)
        return {"words_per_s": 1.0, "cpu_s": 1.0, "words": 1}

    def hops(name: str, rate: int, seconds: float) -> dict[str, float]:
        order.append(f"{name} {rate}")
        return {"p50_ms": 1.0, "p99_ms": 1.0, "p999_ms": 1.0}

    monkeypatch.setattr(engine, "run_words", lambda total: words("words"))
    monkeypatch.setattr(engine, "run_hops", lambda rate, seconds: hops("hops", rate, seconds))
    monkeypatch.setattr(engine, "run_bare_hops", lambda rate, seconds: hops("bare", rate, seconds))
    monkeypatch.setattr(engine, "why_unavailable", lambda: "bytewax is not installed")
    said: list[str] = []
    result = engine.run_engine_benchmark(engine.Sizes(1000, 1.0, 2), said.append)
    assert order == ["words", "hops 1000", "bare 1000", "hops 5000", "bare 5000"] * 2
    assert said[0] == "the comparison with Bytewax is skipped: bytewax is not installed"
    assert len(said) == 1 + len(order)
    assert "bytewax_words_per_s" not in result


def test_an_error_is_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sizes: engine.Sizes, say: engine.Say) -> dict[str, Any]:
        raise TailraceError("hops did not finish: rate=5000")

    monkeypatch.setattr(engine, "run_engine_benchmark", fail)
    result = invoke("bench", "engine")
    assert result.exit_code == 1
    assert result.output == "Error: hops did not finish: rate=5000\n"


def test_bench_engine_really(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    options = ["--sentences", "2000", "--seconds", "1", "--repeats", "1", "--json", str(file)]
    done = subprocess.run([*TAILRACE, "bench", "engine", *options], capture_output=True, text=True, timeout=200)
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


# --- demo


def test_demo_really(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--seconds", "4", "--workers", "2", "--out", str(out)]
    done = subprocess.run([*TAILRACE, "demo", *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = sum(len(demo.split_words(demo.sentence(number))) for number in range(4 * demo.RATE))
    assert done.stdout.splitlines()[-1] == f"check: {expected:,} rows, each exactly once ({4 * demo.RATE} sentences)"
    assert re.search(r"^kill -9 \d+: worker 1 is gone, and with it .*look_up/", done.stdout, re.MULTILINE)
    assert re.search(
        r"^worker 1 is back as process \d+; what was under way is emitted again$", done.stdout, re.MULTILINE
    )
    assert "recoveries 1" in done.stdout
    assert demo.judge(out, 4 * demo.RATE).ok


def test_ctrl_c_drains(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--seconds", "60", "--no-kill", "--workers", "2", "--out", str(out)]
    with subprocess.Popen([*TAILRACE, "demo", *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 60
            while not list(out.glob("part-*.jsonl")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            text, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, text
    assert "draining: what was read becomes durable" in text
    assert re.search(r"^check: [\d,]+ rows, each exactly once", text, re.MULTILINE)


def row(sentence: int, position: int) -> dict[str, Any]:
    return {**demo.split_words(demo.sentence(sentence))[position]._asdict(), "count": 1}


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "part-0.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))


def whole(sentence: int) -> list[dict[str, Any]]:
    return [row(sentence, position) for position in range(len(demo.split_words(demo.sentence(sentence))))]


def test_the_check_finds_what_is_doubled_and_what_is_missing(tmp_path: Path) -> None:
    rows = whole(0) + whole(1)
    write(tmp_path, rows)
    assert demo.judge(tmp_path, 2).ok
    assert str(demo.judge(tmp_path, 2)) == f"{len(rows)} rows, each exactly once"
    write(tmp_path, [*rows, rows[0]])
    assert str(demo.judge(tmp_path, 2)) == f"NOT exactly once: {len(rows) + 1} rows, 1 doubled, 0 missing"
    write(tmp_path, rows[1:])
    assert str(demo.judge(tmp_path, 2)) == f"NOT exactly once: {len(rows) - 1} rows, 0 doubled, 1 missing"
    assert not demo.judge(tmp_path, 3).ok


def test_after_a_drain_the_check_still_finds_gaps(tmp_path: Path) -> None:
    write(tmp_path, whole(0) + whole(1) + whole(2))
    assert demo.judge(tmp_path, None).ok
    write(tmp_path, whole(0) + whole(1) + whole(4))
    assert demo.judge(tmp_path, None).missing == len(whole(2))
