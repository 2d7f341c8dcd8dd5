"""A journal of more files than a process may open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tailrace.calls.journal_keys import journal_key
from tailrace.runtime.calls.journal_files import open_journal

OWNER = "function geocode"

FEW_FILES = """
import os, resource, sys
from pathlib import Path
from tailrace.calls.journal_keys import journal_key
from tailrace.errors import TailraceError
from tailrace.runtime.calls.journal_files import open_journal

folder, files = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (files // 2, files // 2))
journal = open_journal(folder, "reader", owner="function geocode")
opened = []
try:
    while True:
        opened.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for free in (0, 2, 2):  # none, then too few for three writers that live, then one more than they take
    for _ in range(free):
        os.close(opened.pop())
    try:
        print(all(journal.find(journal_key(number)) == (number,) for number in range(files)))
    except TailraceError as error:
        print(error)
"""


def test_a_journal_of_more_files_than_a_process_may_open_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    """Files of writers that are gone take one descriptor, however many they are."""
    living = []
    for number in range(200):
        writer = open_journal(tmp_path, f"geocode-{number}", owner=OWNER)
        writer.keep(journal_key(number), number)
        if number < 3:
            living.append(writer)
        else:
            writer.close()
    command = [sys.executable, "-c", FEW_FILES, str(tmp_path), "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *refused, found = done.stdout.splitlines()
    assert (len(refused), found, done.stderr) == (2, "True", "")
    for line in refused:
        assert line.startswith("a file of a journal cannot be read, as this process has too many files open: file=")
        assert line.endswith(": does something leave files open, or could ulimit -n be higher?")
    for writer in living:
        writer.close()
