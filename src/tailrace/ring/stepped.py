"""A build of the extension in which a process stops at a step of a write or a read, for tests and ``stress``.

The steps are the ``RING_STEP`` of ``_pair.h`` and ``_shared.h``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

NAME = "tailrace.ring._ring"
SOURCE = Path(__file__).parent

WRITING = range(1, 9)
"""1 about to reserve, 2 said so, 3 reserved without a head, 4 without a status, 5 WRITING, 6 half, 7 whole, 8 READY."""

READING = range(9, 14)
"""9 about to take, 10 to give back, 11 to clear, 12 cleared up to the end of the data, 13 about to end the turn."""


def build(folder: Path) -> Path:
    """Compile it. Raises FileNotFoundError if there is no compiler."""
    library = folder / "_ring.abi3.so"
    include = f"-I{sysconfig.get_paths()['include']}"
    flags = ["-DRING_STEPS", "-D_GNU_SOURCE", "-std=c11", "-O1", "-g", "-shared", "-fPIC", include]
    subprocess.run(["gcc", *flags, str(SOURCE / "_ring.c"), "-o", str(library)], check=True)
    return library


def open_library(library: Path) -> ModuleType:
    """The module, beside the usual one if that is there."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(library))
    spec = importlib.util.spec_from_file_location(NAME, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def load(library: Path) -> ModuleType:
    """Make it the extension of this process. Nothing may have imported the usual one."""
    if NAME in sys.modules:
        raise ImportError(f"the usual extension is loaded already: name={NAME}; was a ring imported before?")
    sys.modules[NAME] = module = open_library(library)
    return module
