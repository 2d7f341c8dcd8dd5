"""Writers are killed in the middle of writing, again and again: what they had kept is found, and nothing else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tailrace.calls.journal_keys import journal_key
from tailrace.runtime.calls.journal_files import open_journal

WRITERS, KILLS = 3, 8

WRITER = """
import sys
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
from random import Random
from tailrace.calls.journal_keys import journal_key
from tailrace.runtime.calls.journal_files import open_journal

folder, writer, seed = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
rng = Random(seed)
journal = open_journal(folder, writer, owner="function kill")
number = 0
while number < 300:  # it is killed long before, unless the machine is busy
    number += 1
    result = (writer, number, rng.randbytes(rng.choice([10, 1_000, 400_000])))
    journal.keep(journal_key(writer, number), result)
    print(number, flush=True)
sys.stdin.read()
"""


def test_what_killed_writers_have_kept_is_found(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10_000)
    rng = random.Random(seed)
    folder = tmp_path / "journal"
    reader = open_journal(folder, "reader", owner="function kill")
    log = {f"writer-{n}": tmp_path / f"writer-{n}.log" for n in range(KILLS)}
    started: dict[str, subprocess.Popen[bytes]] = {}

    def start(number: int) -> None:
        name = f"writer-{number}"
        with log[name].open("wb") as out:
            command = [sys.executable, "-c", WRITER, repr(sys.path), str(folder), name, str(seed + number)]
            started[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out)

    def said(name: str) -> int:
        """The number of the last result that the writer had kept, by its own word."""
        lines = log[name].read_bytes().split(b"\n")[:-1]
        return int(lines[-1]) if lines else 0

    try:
        for number in range(WRITERS):
            start(number)
        for number in range(KILLS):
            name = f"writer-{number}"
            deadline = time.monotonic() + 60
            while said(name) < 5:
                assert time.monotonic() < deadline, f"{name} writes nothing: seed={seed}"
                assert reader.find(journal_key("nothing")) is None
                time.sleep(0.01)
            time.sleep(rng.random() * 0.05)
            os.kill(started[name].pid, signal.SIGKILL)
            started[name].wait(30)
            _check(folder, name, said(name), seed)
            if number + WRITERS < KILLS:
                start(number + WRITERS)
    finally:
        for process in started.values():
            process.kill()
            process.wait(30)
    for name in log:
        for number in range(1, said(name) + 1):
            found = reader.find(journal_key(name, number))
            assert found is not None, f"lost: writer={name} number={number} seed={seed}"
            assert found[0][:2] == (name, number)
    reader._index.drop_below({})
    assert all(not file.live for file in reader._index._files.values()), "a killed writer counts as alive"
    reader.close()


def _check(folder: Path, name: str, last: int, seed: int) -> None:
    """All that the dead writer had kept is there for a process that begins now; the result under way may be."""
    code = (
        "import sys; sys.path[:0] = eval(sys.argv[1])\n"
        "from pathlib import Path\n"
        "from random import Random\n"
        "from tailrace.calls.journal_keys import journal_key\n"
        "from tailrace.runtime.calls.journal_files import open_journal\n"
        "folder, name, last, seed = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])\n"
        "journal, rng = open_journal(folder, 'checker', owner='function kill'), Random(seed)\n"
        "for number in range(1, last + 3):\n"
        "    wanted = name, number, rng.randbytes(rng.choice([10, 1_000, 400_000]))\n"
        "    found = journal.find(journal_key(name, number))\n"
        "    assert found == (wanted,) or (found is None and number > last), (number, last)\n"
    )
    number = int(name.removeprefix("writer-"))
    command = [sys.executable, "-c", code, repr(sys.path), str(folder), name, str(last), str(seed + number)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert outcome.returncode == 0, f"seed={seed} writer={name}: {outcome.stderr}"
