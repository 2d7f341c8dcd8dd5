"""ThreadSanitizer over the rings' algorithms, with threads instead of processes: ``ring_threads.c``.

The mutations show that it would tell: each breaks one line, and must be caught (``make soak``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("ring_threads.c")
SOURCE = Path(__file__).parents[3] / "src" / "tailrace" / "ring"
FLAGS = ["-fsanitize=thread", "-g", "-O1", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-pthread"]


def compiled(headers: Path, folder: Path) -> Path:
    program = folder / "ring_threads"
    subprocess.run(["gcc", *FLAGS, f"-I{headers}", str(HARNESS), "-o", str(program)], check=True, timeout=60)
    return program


def run(program: Path, seconds: float, seed: int, mortal: int) -> subprocess.CompletedProcess[str]:
    words = [str(program), str(seconds), str(seed), str(mortal)]
    options = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run(words, capture_output=True, text=True, env=options, timeout=60)


@pytest.fixture(scope="module", autouse=True)
def sanitizer(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("empty")
    (folder / "empty.c").write_text("int main(void) { return 0; }")
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    words = ["gcc", "-fsanitize=thread", str(folder / "empty.c"), "-o", str(folder / "empty")]
    if subprocess.run(words, capture_output=True).returncode or subprocess.run([folder / "empty"]).returncode:
        pytest.skip("gcc has no working ThreadSanitizer here")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("threads"))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "mortal"), [(1, 0), (2, 2000), (3, 100)])
def test_no_race_and_every_record_accounted_for(program: Path, seed: int, mortal: int) -> None:
    done = run(program, 4, seed, mortal)
    assert done.returncode == 0, done.stdout + done.stderr[:5000]
    assert not done.stderr
    assert done.stdout.count("records=") == 2


MUTATIONS = {
    "a record shown before its bytes": (
        "_shared.h",
        "atomic_store_explicit(&record->status, RING_READY, memory_order_seq_cst)",
        "atomic_store_explicit(&record->status, RING_READY, memory_order_relaxed)",
    ),
    "space given back before it was read": (
        "_shared.h",
        "atomic_store_explicit(&record->status, RING_HAS_READ, memory_order_release);\n}",
        "atomic_store_explicit(&record->status, RING_HAS_READ, memory_order_relaxed);\n}",
    ),
    "space given back before it was cleared": (
        "_shared.h",
        "atomic_store_explicit(&end->ring->head, to, memory_order_seq_cst)",
        "atomic_store_explicit(&end->ring->head, to, memory_order_relaxed)",
    ),
    "stale bytes": ("_shared.h", "memset(end->data + begin, 0, first);", ""),
    "a turn for two": (
        "_shared.h",
        "            return 1;\n        sched_yield();",
        "            return 1;\n        return 1;",
    ),
    "a wake-up lost": ("_wait.h", "if (waited & RING_SLEEPS)", "if (waited == 7)"),
    "a pair's record shown before its bytes": (
        "_pair.h",
        "atomic_store_explicit(&ring->tail, tail, memory_order_seq_cst)",
        "atomic_store_explicit(&ring->tail, tail, memory_order_relaxed)",
    ),
    "a pair's space given back before it was read": (
        "_pair.h",
        "atomic_store_explicit(&ring->head, position, memory_order_seq_cst)",
        "atomic_store_explicit(&ring->head, position, memory_order_relaxed)",
    ),
}


DEADLY_MUTATIONS = {
    "a gap of any length": ("_shared.h", "if (same && (*dead || dead_ones == 0))", "if (1)"),
    "the clearing forgotten": ("_shared.h", "if (clearing != head) shared_move_head(end, head, clearing);", ""),
    "a record of the dead kept": ("_shared.h", "dead = slot < RING_SLOTS && (buried >> slot) & 1;", "dead = 0;"),
    "a turn of the dead kept": ("_shared.h", "moved = shared_inherit_turn(end, dead[index]);", "moved = RING_NONE;"),
    "the living given up": ("_shared.h", "dead = slot < RING_SLOTS && (buried >> slot) & 1;", "dead = buried != 0;"),
}


@pytest.mark.soak
@pytest.mark.parametrize("name", MUTATIONS | DEADLY_MUTATIONS)
def test_a_mutation_is_caught(name: str, tmp_path: Path) -> None:
    file, old, new = (MUTATIONS | DEADLY_MUTATIONS)[name]
    headers = tmp_path / "ring"
    shutil.copytree(SOURCE, headers, ignore=shutil.ignore_patterns("*.so", "*.py", "__pycache__"))
    text = (headers / file).read_text()
    assert text.count(old) == 1, f"the mutation has no place: file={file} text={old!r}"
    (headers / file).write_text(text.replace(old, new))
    done = run(compiled(headers, tmp_path), 5, 1, mortal=50 * (name in DEADLY_MUTATIONS))
    assert done.returncode != 0, done.stdout
