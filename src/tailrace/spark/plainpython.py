"""Finds the Python that executors would use in a session started by the user, as far as this machine can tell.

A session that Tailrace starts uses the current interpreter. Any other uses ``PYSPARK_PYTHON``, or else the first
``python3`` on the path. If a virtual environment is in use but not activated, that one does not have Tailrace.
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
"""How long an interpreter may take to start and import the package on a busy machine."""

_LOOK = """
import json, platform
found = {"python": platform.python_version(), "tailrace": "", "missing": ""}
try:
    import tailrace, pyarrow, cloudpickle
    found["tailrace"] = tailrace.__version__
except Exception as error:
    found["missing"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class PlainPython:
    """``fits``: whether workers could run with it. ``words``: what it is, and what to do if it does not fit."""

    fits: bool
    words: str


def plain_python(conf: Mapping[str, str]) -> PlainPython:
    """Find and check it. Call this before Tailrace starts a session, which sets ``PYSPARK_PYTHON``."""
    name, origin = _choice(conf)
    remedy = f"set PYSPARK_PYTHON={sys.executable} before you start one"
    path = shutil.which(name)
    if path is None:
        return PlainPython(False, f"a session of your own would find no Python: {origin}; {remedy}")
    if path == sys.executable:
        return PlainPython(True, f"a session of your own would use this Python too ({origin})")
    found, problem = _look_at(path)
    if not problem:
        return PlainPython(True, f"a session of your own would use {path}, which has what workers need ({origin})")
    version = f" (Python {found['python']})" if found else ""
    other = f"a session of your own would use another Python than this one: {origin} at {path}{version}"
    return PlainPython(False, f"{other}: {problem}; {remedy}")


def _choice(conf: Mapping[str, str]) -> tuple[str, str]:
    """The interpreter, and the setting that chose it."""
    set_by_conf, set_by_variable = conf.get("spark.pyspark.python"), os.environ.get("PYSPARK_PYTHON")
    if set_by_conf:
        return set_by_conf, f"spark.pyspark.python={set_by_conf}"
    if set_by_variable:
        return set_by_variable, f"PYSPARK_PYTHON={set_by_variable}"
    return "python3", "PYSPARK_PYTHON is not set, so python3 on the path"


def _look_at(path: str) -> tuple[dict[str, str], str]:
    """The versions that an interpreter has, and what is wrong with it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        run = subprocess.run(
            [path, "-c", _LOOK], capture_output=True, text=True, timeout=LOOK_S, check=True, cwd="/", env=environment
        )
        found: dict[str, str] = json.loads(run.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {}, f"it does not run: {type(error).__name__}"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found["python"].rpartition(".")[0] != ours:
        return found, f"this one is {ours}"
    if found["missing"]:
        return found, f"it lacks what workers need: {found['missing']}"
    if found["tailrace"] != VERSION:
        return found, f"it has tailrace {found['tailrace']}, this one {VERSION}"
    return found, ""
