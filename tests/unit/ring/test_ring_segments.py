"""Segments: made, taken over, refused with a word about why, and swept when their maker is dead."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.errors import SegmentError
from tailrace.ring import layout, owner, segment
from tailrace.ring.pair import PairRing
from tailrace.ring.segment import Segment, ring_capacity, sweep
from tailrace.testing.processes import is_stopped, wait_until


@pytest.fixture
def made() -> Iterator[Segment]:
    one = Segment.create("test", layout.PAIR, layout.SMALLEST)
    yield one
    one.unlink()
    one.close()


# -- sizes


@pytest.mark.parametrize(
    ("least", "capacity"), [(1, 1 << 16), (1 << 16, 1 << 16), ((1 << 16) + 1, 1 << 17), (1 << 30, 1 << 30)]
)
def test_a_capacity_is_a_power_of_two(least: int, capacity: int) -> None:
    assert ring_capacity(least) == capacity


@pytest.mark.parametrize("least", [0, -1, (1 << 30) + 1])
def test_an_impossible_size(least: int) -> None:
    with pytest.raises(SegmentError) as raised:
        ring_capacity(least)
    text = f"ring of impossible size: bytes={least} limit={1 << 30}; did you mix two numbers up?"
    assert str(raised.value) == text


@pytest.mark.parametrize("capacity", [1 << 16, 1 << 20, 1 << 26, 1 << 30])
def test_the_largest_record_of_every_size_goes_through(capacity: int) -> None:
    free = os.statvfs(segment.FOLDER)
    if free.f_bavail * free.f_frsize < 2 * capacity:
        pytest.skip(f"{segment.FOLDER} has no room for a ring of {capacity} bytes")
    with PairRing.create("test", capacity) as ring:
        ring.segment.unlink()
        record = bytes(range(256)) * 64
        record += bytes(layout.largest_payload(capacity) - len(record))
        for _ in range(3):
            assert ring.put(record, 0)
            assert [bytes(view[:300]) for _, view in ring.look(1, 0)] == [record[:300]]
            ring.release()


# -- what is refused


def test_a_missing_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(segment, "FOLDER", tmp_path / "none")
    with pytest.raises(
        SegmentError, match=r"cannot create a segment: .*No such file.*; is .*none there and writable\?$"
    ):
        Segment.create("test", layout.PAIR, 1)
    assert sweep() == []


def test_no_room_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(segment, "FOLDER", tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(SegmentError, match=r"no shared memory: bytes=65792 folder=.*: File too large$"):
            Segment.create("test", layout.PAIR, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(tmp_path)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("may not mount a file system here")
    monkeypatch.setattr(segment, "FOLDER", tmp_path)
    try:
        fits = Segment.create("test", layout.PAIR, 1 << 16)
        with pytest.raises(SegmentError, match=r"No space left on device; is it full\?$"):
            Segment.create("test", layout.PAIR, 1 << 16)
        assert list(tmp_path.iterdir()) == [fits.path]
        fits.close()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def refused(path: Path, kind: int = layout.PAIR, nonce: bytes | None = None) -> str:
    with pytest.raises(SegmentError) as raised:
        Segment.attach(path, kind, nonce)
    return str(raised.value).replace(str(path), "PATH")


def test_what_is_not_there(tmp_path: Path) -> None:
    assert refused(tmp_path / "none").startswith("no such segment: [Errno 2]")
    assert refused(tmp_path / "none").endswith("; is its maker on another machine?")


def test_a_link_to_somewhere_else(made: Segment, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(made.path)
    assert refused(tmp_path / "link").startswith("no such segment: [Errno 40]")


def test_a_folder(tmp_path: Path) -> None:
    assert refused(tmp_path).startswith("no such segment: [Errno 21]")


def test_a_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    text = "not a segment: path=PATH magic=0x7878787878787878; does something else use this name?"
    assert refused(path) == text


@pytest.mark.parametrize("size", [0, 1, layout.SEGMENT.size - 1])
def test_a_stump(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    assert refused(tmp_path / "file") == f"not a segment: path=PATH bytes={size}; was it cut off?"


def test_one_that_was_cut_off(made: Segment) -> None:
    os.truncate(made.path, 4096)
    assert refused(made.path) == "segment does not add up: path=PATH capacity=65536 bytes=4096"


Change = Callable[[Segment], object]


def pack(**values: int) -> Change:
    def change(one: Segment) -> None:
        fields = list(layout.SEGMENT.unpack_from(one.memory))
        for name, value in values.items():
            fields[layout.SEGMENT_FIELDS.index(name)] = value
        layout.SEGMENT.pack_into(one.memory, 0, *fields)

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (pack(version=1), "segment of another version: path=PATH version=1 ours=2"),
        (pack(version=3), "segment of another version: path=PATH version=3 ours=2"),
        (pack(kind=layout.SHARED), "segment of another kind: path=PATH kind=2 expected=1"),
        (pack(capacity=65537), "segment does not add up: path=PATH capacity=65537 bytes=65792"),
        (pack(capacity=1 << 17), "segment does not add up: path=PATH capacity=131072 bytes=65792"),
        (pack(capacity=64), "segment does not add up: path=PATH capacity=64 bytes=65792"),
        (pack(processes=1), "segment of another process namespace: path=PATH; is its maker in another container?"),
    ],
)
def test_a_segment_that_is_not_what_it_should_be(made: Segment, change: Change, text: str) -> None:
    change(made)
    assert refused(made.path) == text


def test_another_segment_of_the_same_name(made: Segment) -> None:
    text = "another segment of the same name: path=PATH; is its maker on another machine?"
    assert refused(made.path, nonce=bytes(16)) == text
    Segment.attach(made.path, layout.PAIR, made.nonce).close()


def test_one_of_another_user(made: Segment) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(made.path, 12345, -1)
    assert refused(made.path) == "segment of another user: path=PATH uid=12345"


def test_only_its_user_may_open_it(made: Segment) -> None:
    assert made.path.stat().st_mode & 0o777 == 0o600


# -- sweeping

MAKER = """
import sys, tailrace.ring.segment as segment
one = segment.Segment.create("sweep-test.1", 1, 1)
print(one.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def maker() -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", MAKER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_what_the_dead_have_left_is_swept(maker: subprocess.Popen[str], made: Segment) -> None:
    assert maker.stdout is not None
    path = Path(maker.stdout.readline().strip())
    bell = Path(f"{path}.bell")
    os.mkfifo(bell)
    assert path not in sweep(), "its maker lives"
    maker.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(maker.pid))
    assert path not in sweep(), "its maker is stopped, but lives"
    maker.kill()
    wait_until(lambda: not owner.is_alive(int(path.name.split("-")[-2])))  # dead, and not yet reaped
    assert {path, bell} <= set(sweep())
    assert not path.exists()
    assert not bell.exists()
    assert made.path.exists()


ENDING = """
import os, threading, time
from tailrace.ring.segment import sweep_own
from tailrace.runtime.links.channels import offer_ring

offered = []

def offer():
    while True:
        part = offer_ring("sweep-test.2", "bundles")
        offered.append(part.segment.path)
        part.withdraw()
        part.close()

for _ in range(3):
    threading.Thread(target=offer, daemon=True).start()
while len(offered) < 9:
    time.sleep(0.001)
sweep_own()
time.sleep(0.05)  # for those under way
before = len(offered)
time.sleep(0.05)
os._exit(len(offered) - before)
"""


def test_a_process_that_is_about_to_end_makes_no_more() -> None:
    assert subprocess.run([sys.executable, "-c", ENDING], timeout=60).returncode == 0
    assert not list(segment.FOLDER.glob(f"{segment.PREFIX}-sweep-test.2-*"))


def test_names_that_are_not_ours_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(segment, "FOLDER", tmp_path)
    here = owner.process_namespace()
    dead = 0x3FFFFF << 32
    ours = tmp_path / f"tailrace-run-{here}-{dead}-0"
    others = [f"tailrace-run-{here + 1}-{dead}-0", f"tailrace-run-{here}-x-0", "tailrace-run", f"x-run-{here}-{dead}-0"]
    for name in (ours.name, *others):
        (tmp_path / name).touch()
    assert sweep() == [ours]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


# -- who is alive


def test_we_are_alive_and_a_namesake_is_not() -> None:
    assert owner.is_alive(owner.own_id())
    assert not owner.is_alive(owner.own_id() + 1)
    assert owner.is_alive(1 << 32 | (owner._started(1) or 0))  # of another user, unless we are root


@pytest.mark.parametrize("rubbish", [0, 1, 1 << 31, (1 << 64) - 1, 1 << 63, (1 << 22 | 1) << 32])
def test_rubbish_is_not_alive(rubbish: int) -> None:
    assert not owner.is_alive(rubbish)


def test_only_proof_of_death_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot open another file has proven nothing."""
    us = owner.own_id()

    def no_files_left(path: Path) -> str:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_text", no_files_left)
    assert owner.is_alive(us)


def test_a_process_lives_as_long_as_any_of_its_threads() -> None:
    """Its first thread may be a zombie while another one writes to a ring."""
    pid = os.fork()
    if pid == 0:
        threading.Thread(target=signal.pause).start()
        ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)  # exit, of this thread only
    try:
        wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        assert owner.is_alive(pid << 32 | started)
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not owner.is_alive(pid << 32 | started))
    os.waitpid(pid, 0)
