"""A process at a ring that does what it is told, a line at a time, and stops at a step if that was asked for.

python ring_child.py LIBRARY SEGMENT shared|pair
"""

from __future__ import annotations

import sys
from pathlib import Path

from tailrace.ring import stepped


def main(library: str, segment: str, kind: str) -> None:
    extension = stepped.load(Path(library))
    from tailrace.ring.pair import PairRing
    from tailrace.ring.shared import SharedRing

    ring = (SharedRing if kind == "shared" else PairRing).attach(Path(segment))
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["stop", step]:
                extension.stop_at(int(step))
            case ["put", text, size]:
                print("put", ring.put(text.encode().ljust(int(size)), 20), flush=True)
            case ["get"]:
                record = ring.get(20)
                print("got", record and record[1].split()[0].decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
