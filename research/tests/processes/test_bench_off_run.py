"""An engine in a folder, measured in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.errors import OptionError, TailraceError
from tailrace.ring import why_unavailable
from tailrace_research.bench.tail.off import BASELINE, cpu_us, folder_before

CLONE = Path(tailrace.__file__).resolve().parents[2]


@pytest.mark.parametrize("topology", ["words", "sends"])
def test_the_engine_in_a_folder_runs_and_tells_what_it_used(topology: str) -> None:
    engine = folder_before(str(CLONE))
    assert engine == CLONE / "src"
    assert 1 < cpu_us(engine, topology, 1_000) < 1_000_000


def test_an_engine_that_is_not_there_is_not_taken_for_another(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no engine in this folder: baseline=.*: is there a src/tailrace in it\?"):
        folder_before(str(tmp_path))
    with pytest.raises(TailraceError, match="another engine was measured"):
        cpu_us(tmp_path, "words", 100)


def test_the_engine_of_before_comes_from_the_history() -> None:
    engine = folder_before(None)
    if engine is None:
        pytest.skip(f"no clone, or one without its history: {BASELINE}")
    assert (engine / "tailrace" / "core" / "router.py").exists()
    assert not (engine / "tailrace" / "core" / "sendinghalf.py").exists(), "there was no feedback yet"
    assert bool(why_unavailable()) or (engine / "tailrace" / "ring" / "_ring.abi3.so").exists(), "links of one kind"
