"""The command line: what it refuses, what it prints, and one short real run of each command."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tailrace
from tailrace import demo
from tailrace.cli import common, main, running

TAILRACE = [sys.executable, "-m", "tailrace.cli"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_version_and_help() -> None:
    assert invoke("--version").output == f"tailrace, version {tailrace.__version__}\n"
    result = invoke("--help")
    assert result.exit_code == 0
    for command in ("run", "doctor", "demo", "sim"):
        assert command in result.output


@pytest.mark.parametrize(
    "command",
    [("run",), ("doctor",), ("demo",)],
)
def test_help_shows_examples(command: tuple[str, ...]) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert f"\n    tailrace {' '.join(command)}" in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("demo", "--workers", "0"), "'--workers': 0 is not in the range 1<=x<=64"),
        (("demo", "--seconds", "0.1"), "'--seconds': 0.1 is not in the range x>=1.0"),
        (("demo", "--host", "storm"), "'--host': 'storm' is not one of 'spark', 'process'"),
        (("run",), "Missing argument 'FILE.py[:NAME]'"),
        (("run", "no/such.py"), "no such file: no/such.py; are you in the right folder?"),
        (
            ("run", "f.py", "--conf", "spark.executor.memory"),
            "'--conf': 'spark.executor.memory' is not of the form key",
        ),
        (("run", "f.py", "--conf", "=2g"), "'--conf': '=2g' is not of the form key=value"),
        (("run", "f.py", "--host", "process", "--master", "yarn"), "only Spark has it; did you mean --host spark?"),
        (("run", "f.py", "--metrics-port", "70000"), "'--metrics-port': 70000 is not in the range 0<=x<=65535"),
        (("doctor", "--conf", "x"), "'--conf': 'x' is not of the form key=value"),
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


# --- run

WORDS_FILE = """
from __future__ import annotations

from dataclasses import dataclass

import tailrace as tr
from helper import split


@dataclass
class Word:  # travels between workers, which cannot import this file
    text: str


def show(word: Word) -> None:
    print("seen", word.text)
    if word.text == "{poison}":
        raise ValueError("not this one")


topology = tr.Topology("words")
words = topology.source("lines", tr.from_iterable(["b a", "c"])).flat_map("split", split, tasks=2)
words = words.map("word", lambda text: Word(text), tasks=2).map("again", lambda word: word, tasks=2)
words.sink("out", tr.to_call(show))

if __name__ == "__main__":
    raise SystemExit("this is for python words.py only")
"""


def words_file(folder: Path, poison: str = "") -> str:
    (folder / "helper.py").write_text("def split(line):\n    return line.split()\n")
    file = folder / "words.py"
    file.write_text(WORDS_FILE.format(poison=poison))
    return str(file)


def tailrace_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*TAILRACE, "run", *arguments, "--host", "process"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["", ":topology"])
def test_run_shows_progress_and_a_summary(tmp_path: Path, name: str) -> None:
    done = tailrace_run(words_file(tmp_path) + name)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert sorted(re.findall(r"seen (.)", done.stdout)) == ["a", "b", "c"]
    assert re.search(r"^\S+ words finished \| ", done.stdout, re.MULTILINE)
    assert re.search(r"^words after [\d.]+ s: finished$", done.stdout, re.MULTILINE)


def test_run_as_json_writes_nothing_else(tmp_path: Path) -> None:
    techniques = ("--shared-queues", "worker", "--send", "lbf", "--replay", "fixed_timeout=500")
    options = ("--checkpoint", str(tmp_path / "state"), "--metrics-port", "0", *techniques)
    done = tailrace_run(words_file(tmp_path), "--json", *options)
    assert done.returncode == 0, done.stderr
    progress = [json.loads(line) for line in done.stdout.splitlines()]
    assert progress[-1]["status"] == "finished"
    assert progress[-1]["completed"] == 2
    assert progress[-1]["tail"] == {"replay": "fixed_timeout", "shared_queues": "worker", "send": "lbf"}
    assert "seen a" in done.stderr  # what workers print is not lost
    assert re.search(r"^metrics: http://127\.0\.0\.1:\d+/metrics$", done.stderr, re.MULTILINE)
    again = tailrace_run(words_file(tmp_path), "--json", "--checkpoint", str(tmp_path / "state"))
    assert json.loads(again.stdout.splitlines()[-1])["completed"] == 0


def test_techniques_that_there_are_not_are_refused(tmp_path: Path) -> None:
    done = tailrace_run(words_file(tmp_path), "--shared-queues", "rack")
    assert done.returncode == 1
    assert "not a way to share queues: shared_queues='rack'" in done.stderr and "Traceback" not in done.stderr


def test_a_failing_function_is_shown_as_its_author_sees_it(tmp_path: Path) -> None:
    done = tailrace_run(words_file(tmp_path, poison="a"))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{tmp_path / "words.py"}", line ')
    assert "ValueError: not this one" in lines
    assert lines[-1].startswith("operator failed: operator=out task=0 tuple=")
    assert str(Path(tailrace.__file__).parent) not in done.stderr


def test_a_taken_metrics_port_is_told_and_stops_the_run(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = tailrace_run(words_file(tmp_path), "--metrics-port", str(port))
    assert done.returncode == 1
    assert done.stderr == f"Error: no metrics: port is taken: port={port}; is another run using it?\n"


@pytest.mark.parametrize(
    ("code", "name", "expected"),
    [
        ("x = 1", "", "no topology in {file}; is it inside a function? It must be a variable of the file."),
        ("x = 1", ":x", "no such topology: {file}:x; topologies=none"),
        (
            "a, b = tr.Topology('a'), tr.Topology('b')",
            "",
            "several topologies in {file}: a, b; which one? Say {file}:a",
        ),
        ("a, b = tr.Topology('a'), tr.Topology('b')", ":c", "no such topology: {file}:c; topologies=a, b"),
    ],
)
def test_which_topology_must_be_clear(tmp_path: Path, code: str, name: str, expected: str) -> None:
    file = tmp_path / "f.py"
    file.write_text(f"import tailrace as tr\n{code}\n")
    result = invoke("run", f"{file}{name}")
    assert result.exit_code == 2
    assert expected.format(file=file) in result.output


def test_one_topology_under_two_names_is_one(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text("import tailrace as tr\na = b = tr.Topology('one')\n")
    assert running.load_topology(str(file)).name == "one"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("1 / 0", 'Traceback (most recent call last):\n  File "{file}", line 2, in <module>\n    1 / 0\n'),
        ("x = (", '  File "{file}", line 2\n    x = (\n'),
        ("tr.Topology('t').source('s', 3)", "tailrace.errors.TopologyError: not a source: operator=s"),
    ],
)
def test_an_error_in_the_file_is_shown_without_our_frames(tmp_path: Path, code: str, expected: str) -> None:
    file = tmp_path / "f.py"
    file.write_text(f"import tailrace as tr\n{code}\n")
    result = invoke("run", str(file))
    assert result.exit_code == 1
    assert expected.format(file=file) in result.output
    assert str(Path(tailrace.__file__).parent) not in result.output


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("presses", [1, 2])
def test_a_signal_drains_a_run_and_twice_gives_up(tmp_path: Path, presses: int, kind: signal.Signals) -> None:
    (tmp_path / "f.py").write_text(
        "import time\nimport tailrace as tr\n"
        "def read(split, splits):\n    return range(10**9)\n"
        f"def slow(n):\n    time.sleep({0.001 if presses == 1 else 2})\n    print('seen')\n    return n\n"
        "topology = tr.Topology('endless')\n"
        "numbers = topology.source('numbers', tr.at_rate(read, 100))\n"
        "numbers.map('slow', slow, kind='blocking').sink('out', tr.to_call(lambda n: None))\n"
    )
    command = [*TAILRACE, "run", str(tmp_path / "f.py"), "--host", "process"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            wanted = ["seen"] + ["draining"] * (presses - 1)
            for word in wanted:
                assert any(word in line for line in process.stdout)
                process.send_signal(kind)
            rest = process.communicate(timeout=60)[0]
        finally:
            process.kill()
    assert process.returncode == 128 + kind, rest
    assert ("giving up" in rest) == (presses == 2)
    assert ("endless after" in rest) == (presses == 1)


# --- doctor


@pytest.mark.parametrize("ok", [True, False])
def test_doctor_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch, ok: bool) -> None:
    from tailrace.spark import doctor

    @contextmanager
    def no_session(*_: object, **__: object) -> Iterator[None]:
        yield None

    findings = [doctor.Finding(True, "Java", "version 17"), doctor.Finding(ok, "slots", "4 of 4 free")]
    plain = doctor.Finding(True, "other sessions", "no tailrace", advice=True)
    monkeypatch.setattr(doctor, "check_java", lambda: findings[0])
    monkeypatch.setattr(doctor, "check_plain_python", lambda conf: plain)
    monkeypatch.setattr(doctor, "examine", lambda spark: doctor.Diagnosis(findings, []))
    monkeypatch.setattr(common, "session", no_session)
    result = invoke("doctor")
    assert result.exit_code == (0 if ok else 1)
    assert (
        f"✓ Java: version 17\n{'✓' if ok else '✗'} slots: 4 of 4 free\n! other sessions: no tailrace\n" in result.output
    )
    assert ("all is well, but see ! above" in result.output) == ok
    found = json.loads(invoke("doctor", "--json").stdout)
    assert (found["ok"], found["executors"], [check["ok"] for check in found["checks"]]) == (ok, [], [True, ok, True])


def test_doctor_without_java_starts_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "✗ Java: no Java found: JAVA_HOME=/nowhere;" in result.output
    assert json.loads(invoke("doctor", "--json").stdout)["ok"] is False


# --- demo


def test_demo_really(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--host", "process", "--seconds", "4", "--workers", "2", "--out", str(out)]
    done = subprocess.run([*TAILRACE, "demo", *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = sum(len(demo.split_words(demo.sentence(number))) for number in range(4 * demo.RATE))
    assert done.stdout.splitlines()[-1] == f"check: {expected:,} rows, each exactly once ({4 * demo.RATE} sentences)"
    assert re.search(r"^kill -9 \d+: worker 1 is gone, and with it .*look_up/", done.stdout, re.MULTILINE)
    assert "is gone" not in done.stderr, "the run says the same in its own words"
    assert re.search(
        r"^worker 1 is back as process \d+; what was under way is emitted again$", done.stdout, re.MULTILINE
    )
    assert "recoveries 1" in done.stdout
    assert demo.judge(out, 4 * demo.RATE).ok


def test_ctrl_c_drains(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--host", "process", "--seconds", "60", "--no-kill", "--workers", "2", "--out", str(out)]
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
