"""The lock of a folder: held by one, and released by the system when its holder's process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import OptionError
from tailrace.runtime.driver.folder_lock import is_abandoned, lock_folder, lock_new

HOLD = """
import sys
from pathlib import Path
from tailrace.runtime.driver.folder_lock import lock_new
lock = lock_new(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_one_is_refused(tmp_path: Path) -> None:
    with lock_folder(tmp_path, "busy"):
        with pytest.raises(OptionError) as caught:
            lock_folder(tmp_path, "in use: is there another?")
        assert str(caught.value) == "in use: is there another?"
        assert not is_abandoned(tmp_path)
    lock_folder(tmp_path, "busy").close()


def test_a_folder_is_abandoned_when_its_holder_was_killed(tmp_path: Path) -> None:
    assert not is_abandoned(tmp_path), "nobody has locked it yet"
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]
        assert not is_abandoned(tmp_path)
        holder.kill()
    assert is_abandoned(tmp_path)


def test_a_new_folder_is_locked_once(tmp_path: Path) -> None:
    with lock_new(tmp_path):
        assert not is_abandoned(tmp_path)
    assert is_abandoned(tmp_path)
