"""The row about what is off: the engine with every technique off, against the engine before there were any.

The engine as it was comes from the project's own history, if this is a clone of it, or from a folder. Both run the same
program in processes of their own, pair by pair, and take turns at being first. Figures are processor time of all
workers for each tuple. Other load on the machine, or on its host, takes caches away: it makes runs longer by tenths and
never shorter, so the least of each engine's runs is compared.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import tailrace
from tailrace.errors import OptionError, TailraceError
from tailrace_research.bench.tail.run import Result, Row, Samples, TailSizes
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of

BASELINE = "2f8c237cf79c50238521dc3a5237cdcd226e1154"
"""The commit before the first one that had senders and tasks talk of load."""

TOPOLOGIES = {"words": "word count", "chain": "four short operators", "sends": "tasks that send side by side"}
"""The last is what a send scheduler would be for: two tasks of an operator in a worker, with tuples for the other."""
ENGINES = ("before", "now")
PAIRS = 6
TIMES = 10
"""Tuples of a run, as a multiple of those of other rows: what starts and ends it shall not count."""

TIMEOUT_S = 240.0
PROGRAM = Path(__file__).with_name("off_process.py")
UNKNOWN = (
    "off: the engine before these techniques is not here: give its folder with --baseline, or run from a clone, "
    "with a C compiler"
)

_kept = ExitStack()  # folders of this process


def folder_before(given: str | None) -> Path | None:
    """Where the engine as it was can be imported from. None: nowhere."""
    here = Path(tailrace.__file__).resolve().parents[1]
    if given is not None:
        folder = next((place for place in (Path(given), Path(given, "src")) if (place / "tailrace").is_dir()), None)
        if folder is None:
            raise OptionError(f"no engine in this folder: baseline={given}: is there a src/tailrace in it?")
        return folder.resolve()
    unpacked = _from_history(here.parent)
    if unpacked is None or not list((here / "tailrace" / "ring").glob("_ring*.so")):
        return unpacked
    return unpacked if _build_rings(unpacked / "tailrace" / "ring") else None


def _from_history(clone: Path) -> Path | None:
    folder = Path(_kept.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-before-")))
    archive = folder / "before.tar"
    command = ["git", "-C", str(clone), "archive", "-o", str(archive), BASELINE, "src"]
    if not (clone / ".git").exists() or shutil.which("git") is None:
        return None
    if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
        return None  # a clone without its history
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / "src"


def _build_rings(folder: Path) -> bool:
    """Compile them, so that links of both engines are of one kind."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    flags = ["-shared", "-fPIC", "-O3", "-std=c11", "-D_GNU_SOURCE"]
    command = [*compiler, *flags, f"-I{sysconfig.get_path('include')}", "_ring.c", "-o", "_ring.abi3.so"]
    try:
        return not subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
    except OSError:
        return False  # there is no compiler


def cpu_us(engine: Path, topology: str, tuples: int) -> float:
    """Processor time of all workers for each tuple, in microseconds."""
    paths = [str(engine), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-P", str(PROGRAM), topology, str(tuples)]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        story = str(error.stderr or "").strip()[-500:]
        raise TailraceError(f"an engine did not get through: engine={engine} topology={topology}\n{story}") from None
    told = json.loads(done.stdout.splitlines()[-1])
    if Path(told["tailrace"]).resolve().parents[1] != engine:
        raise TailraceError(f"another engine was measured: wanted={engine} measured={told['tailrace']}")
    return float(told["us"])


def measure(engines: dict[str, Path], topology: str, tuples: int) -> Figures:
    """Pairs that take turns: the least of each engine, how far they are apart, and how far single pairs are."""
    pairs = []
    for pair in range(PAIRS):
        order = ENGINES if pair % 2 else ENGINES[::-1]
        pairs.append({name: cpu_us(engines[name], topology, tuples) for name in order})
    before, now = (min(pair[name] for pair in pairs) for name in ENGINES)
    overheads = sorted(pair["now"] / pair["before"] - 1 for pair in pairs)
    return {
        f"off_{topology}_before_us": before,
        f"off_{topology}_now_us": now,
        f"off_{topology}_overhead": now / before - 1,
        f"off_{topology}_least": overheads[0],
        f"off_{topology}_most": overheads[-1],
    }


def contests(sizes: TailSizes) -> list[Contest]:
    before = folder_before(sizes.baseline)
    if before is None:
        return []
    engines = {"before": before, "now": Path(tailrace.__file__).resolve().parents[1]}
    tuples = TIMES * sizes.tuples
    return [Contest(f"off, {title}", partial(measure, engines, name, tuples)) for name, title in TOPOLOGIES.items()]


def conclude(samples: Samples) -> Samples:
    """The overhead of the topology with the largest median. The largest of each repeat would pick out noise."""
    found = [samples[key] for name in TOPOLOGIES if (key := f"off_{name}_overhead") in samples]
    return {"off_overhead": list(max(found, key=median))} if found else {}


def table(result: Result) -> list[str]:
    if "off_overhead" not in result:
        return [UNKNOWN]
    rows: list[Sequence[str]] = [("all techniques off, CPU us a tuple", "before", "now", "more", "", "single pairs")]
    for name, title in TOPOLOGIES.items():
        times = [f"{result[f'off_{name}_{engine}_us']:.1f}" for engine in ENGINES]
        key = f"off_{name}_overhead"
        least, most = min(result[f"off_{name}_least_spread"]), max(result[f"off_{name}_most_spread"])
        rows.append(
            (title, *times, f"{result[key]:+.1%}", range_of(result, key, "{:+.1%}"), f"{least:+.0%}..{most:+.0%}")
        )
    return aligned(rows)


WHY_NOT = "it compares two versions of the engine, each in processes of its own; leave --host out"

OFF = Row("off", contests, conclude, table, WHY_NOT)
