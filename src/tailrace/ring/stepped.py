"""A build of the extension in which a process can stop at a given step of a write or a read, for tests.

The steps are the ``RING_STEP`` calls in ``_pair.h`` and ``_shared.h``.
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
"""Steps of a write.

1: before announcing the reservation; 2: announced; 3: reserved, no head; 4: no status; 5: WRITING; 6: half of the
payload; 7: all of it; 8: READY.
"""

READING = range(9, 14)
"""Steps of a read.

9: before taking a record; 10: before returning it; 11: before clearing; 12: cleared up to the end of the data; 13:
before ending the turn.
"""


def build(folder: Path) -> Path:
    """Compile the build. Raises FileNotFoundError if there is no compiler."""
    library = folder / "_ring.abi3.so"
    include = f"-I{sysconfig.get_paths()['include']}"
    flags = ["-DRING_STEPS", "-D_GNU_SOURCE", "-std=c11", "-O1", "-g", "-shared", "-fPIC", include]
    subprocess.run(["gcc", *flags, str(SOURCE / "_ring.c"), "-o", str(library)], check=True)
    return library


def open_library(library: Path) -> ModuleType:
    """Load the build as a module beside the regular one."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(library))
    spec = importlib.util.spec_from_file_location(NAME, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def load(library: Path) -> ModuleType:
    """Make it the extension of this process. The regular one must not have been imported."""
    if NAME in sys.modules:
        raise ImportError(f"the usual extension is loaded already: name={NAME}; was a ring imported before?")
    sys.modules[NAME] = module = open_library(library)
    return module
