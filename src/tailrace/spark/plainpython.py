"""The Python that a session of the user's own would give to its executors, seen from this machine.

A session that Tailrace starts uses the interpreter that runs it. A plain one uses ``PYSPARK_PYTHON``, or else whatever
``python3`` is first on the path, which inside an environment that is not activated is another one, without Tailrace.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.version import VERSION

LOOK_S = 20.0
"""For an interpreter to start and to import the package on a busy machine."""

_LOOK = """
import json, platform
told = {"python": platform.python_version(), "tailrace": "", "missing": ""}
try:
    import tailrace, pyarrow, cloudpickle
    told["tailrace"] = tailrace.__version__
except Exception as error:
    told["missing"] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


@dataclass(frozen=True)
class PlainPython:
    """``fits``: workers could run with it. ``words`` say what it is, and what to do if it does not."""

    fits: bool
    words: str


def plain_python(conf: Mapping[str, str]) -> PlainPython:
    """Look at it. To be called before a session of ours sets ``PYSPARK_PYTHON``."""
    name, origin = _choice(conf)
    remedy = f"set PYSPARK_PYTHON={sys.executable} before you start one"
    path = shutil.which(name)
    if path is None:
        return PlainPython(False, f"a session of your own would find no Python: {origin}; {remedy}")
    if path == sys.executable:
        return PlainPython(True, f"a session of your own would use this Python too ({origin})")
    told, problem = _look_at(path)
    if not problem:
        return PlainPython(True, f"a session of your own would use {path}, which has what workers need ({origin})")
    version = f" (Python {told['python']})" if told else ""
    other = f"a session of your own would use another Python than this one: {origin} at {path}{version}"
    return PlainPython(False, f"{other}: {problem}; {remedy}")


def _choice(conf: Mapping[str, str]) -> tuple[str, str]:
    """What to run, and who says so."""
    set_by_conf, set_by_variable = conf.get("spark.pyspark.python"), os.environ.get("PYSPARK_PYTHON")
    if set_by_conf:
        return set_by_conf, f"spark.pyspark.python={set_by_conf}"
    if set_by_variable:
        return set_by_variable, f"PYSPARK_PYTHON={set_by_variable}"
    return "python3", "PYSPARK_PYTHON is not set, so python3 on the path"


def _look_at(path: str) -> tuple[dict[str, str], str]:
    """What it has, and what is wrong with it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        run = subprocess.run(
            [path, "-c", _LOOK], capture_output=True, text=True, timeout=LOOK_S, check=True, cwd="/", env=environment
        )
        told: dict[str, str] = json.loads(run.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {}, f"it does not run: {type(error).__name__}"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if told["python"].rpartition(".")[0] != ours:
        return told, f"this one is {ours}"
    if told["missing"]:
        return told, f"it lacks what workers need: {told['missing']}"
    if told["tailrace"] != VERSION:
        return told, f"it has tailrace {told['tailrace']}, this one {VERSION}"
    return told, ""
