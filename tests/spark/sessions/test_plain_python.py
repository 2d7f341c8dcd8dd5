"""The Python that a session of the user's own would use: is it this one, and if not, what does it lack?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tailrace.spark.doctor import check_plain_python
from tailrace.spark.plainpython import plain_python

REMEDY = f"; set PYSPARK_PYTHON={sys.executable} before you start one"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only one on the path."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def make(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = plain_python({})
    assert found.fits
    assert found.words == f"a session of your own would use this Python too (PYSPARK_PYTHON={sys.executable})"
    assert not check_plain_python({}).advice


def test_another_one_that_has_all(folder: Path) -> None:
    make(folder / "python3", f'exec "{sys.executable}" "$@"')
    found = plain_python({})
    assert found.fits, found
    assert f"would use {folder / 'python3'}, which has what workers need" in found.words


def test_one_without_the_package(folder: Path) -> None:
    make(folder / "python3", f'exec "{sys.executable}" -S "$@"')  # without its packages
    found = plain_python({})
    assert not found.fits
    assert found.words.startswith(
        "a session of your own would use another Python than this one: PYSPARK_PYTHON is not set, so python3 on the "
        f"path at {folder / 'python3'} (Python "
    )
    assert "it lacks what workers need: ModuleNotFoundError: No module named" in found.words
    assert found.words.endswith(REMEDY)
    finding = check_plain_python({})
    assert finding.ok and finding.advice, "sessions of ours are well"


def test_none_at_all(folder: Path) -> None:
    found = plain_python({"spark.pyspark.python": "python9"})
    assert not found.fits
    assert found.words == f"a session of your own would find no Python: spark.pyspark.python=python9{REMEDY}"


@pytest.mark.parametrize("text", ["exit 3", "echo nonsense"])
def test_one_that_does_not_run(folder: Path, text: str) -> None:
    make(folder / "python3", text)
    assert "it does not run: " in plain_python({}).words


def test_one_of_another_version(folder: Path) -> None:
    told = '{"python": "3.9.1", "tailrace": "", "missing": "no"}'
    make(folder / "python3", f"echo '{told}'")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"(Python 3.9.1): this one is {ours};" in plain_python({}).words


def test_the_environment_is_left_alone(folder: Path) -> None:
    before = dict(os.environ)
    plain_python({})
    assert dict(os.environ) == before
