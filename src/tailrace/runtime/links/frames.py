"""Frames: a length, a kind, a number, a payload, and a seal where an attacker on the way could change it.

Nothing is unpickled before its connection is authenticated, nor before its seal is checked. All frames of a link are
numbered from 1, so that a receiver notices a copy and a gap.
"""

from __future__ import annotations

import marshal
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cloudpickle

from tailrace.core.bundles import Bundle, FeedbackMessage, feedback_message
from tailrace.core.protocol.acks import Fold
from tailrace.errors import ProtocolError
from tailrace.policy.groupings.feedback import Message
from tailrace.policy.groupings.load.reports import Done
from tailrace.policy.groupings.pull.lone_sender import Ran
from tailrace.policy.groupings.pull.receiver import Credit, Revoke
from tailrace.runtime.links.seals import SEAL_BYTES, Seal

BUNDLES = 1
ACKS = 2
MESSAGE = 3
FEEDBACK = 4
CANCELS = 5

HEADER = struct.Struct("<IBQ")  # length of what follows the length, kind, number
LENGTH_BYTES = 4
MAX_FRAME = 256 << 20
"""Bytes. A peer that announces more is broken or hostile; a tuple that needs more does not belong on a network."""

PICKLE_PROTOCOL = 5
MARSHAL_VERSION = 4

_SENT = struct.Struct("<Q")
_ONE_ACK = struct.Struct("<QIIIQQ")
_ONE_MESSAGE = _SENT.pack(0)  # instead of a time, which is never 0

NUMBERED: tuple[Callable[..., Message], ...] = (Done, Ran, Credit, Revoke)
NUMBERS = {kind: number for number, kind in enumerate(NUMBERED)}
"""Messages that come with nearly every tuple are sent as numbers, without the name of their class: that is most of the
cost of encoding them."""


def check_size(payload: bytes) -> None:
    """Raise ProtocolError if the payload is too large for a frame."""
    if len(payload) > MAX_FRAME:
        raise ProtocolError(f"frame too large: bytes={len(payload)} limit={MAX_FRAME}; is one tuple that big?")


def frame(kind: int, number: int, payload: bytes, seal: Seal | None = None) -> bytes:
    """The bytes of a frame: header, payload, and a seal if the connection has seals."""
    check_size(payload)
    length = len(payload) + HEADER.size - LENGTH_BYTES
    if seal is None:
        return HEADER.pack(length, kind, number) + payload
    header = HEADER.pack(length + SEAL_BYTES, kind, number)
    return b"".join((header, payload, seal.of(header, payload)))


class FrameReader:
    """Cuts a stream of bytes into frames, and checks their seals if the connection has seals."""

    def __init__(self, limit: int = MAX_FRAME, seal: Seal | None = None) -> None:
        self._buffer = bytearray()
        self._seal = seal
        self._sealed = 0 if seal is None else SEAL_BYTES
        self._limit = limit + self._sealed

    def feed(self, data: bytes) -> Iterator[tuple[int, int, memoryview]]:
        """The frames that these bytes complete, as (kind, number, payload)."""
        whole: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            if not self._complete():
                return
            whole, self._buffer = self._buffer, bytearray()  # handed on as it is: a copy would double its memory
        view = memoryview(whole)
        position = 0
        while len(whole) - position >= HEADER.size:
            length, kind, number = HEADER.unpack_from(whole, position)
            self._check(length)
            end = position + LENGTH_BYTES + length
            if end > len(whole):
                break
            inner = end - self._sealed
            if self._seal is not None:
                self._seal.check(view[inner:end], view[position:inner])
            yield kind, number, view[position + HEADER.size : inner]
            position = end
        self._buffer += view[position:]

    def _complete(self) -> bool:
        if len(self._buffer) < HEADER.size:
            return False
        length: int = struct.unpack_from("<I", self._buffer)[0]
        self._check(length)
        return len(self._buffer) >= LENGTH_BYTES + length

    def _check(self, length: int) -> None:
        if not HEADER.size - LENGTH_BYTES + self._sealed <= length <= self._limit + HEADER.size:
            limit = self._limit - self._sealed
            raise ProtocolError(f"frame of impossible size: bytes={length} limit={limit}; is the peer Tailrace?")

    @property
    def partial(self) -> bool:
        """Whether the last frame is still incomplete."""
        return bool(self._buffer)


def encode(value: Any) -> bytes:
    """Pickle; by value where a class lives in the user's script, which plain pickle cannot do."""
    try:
        return pickle.dumps(value, PICKLE_PROTOCOL)
    except Exception:
        encoded: bytes = cloudpickle.dumps(value, PICKLE_PROTOCOL)
        return encoded


def decode_bundles(payload: memoryview) -> list[Bundle]:
    """Raises ProtocolError on bytes that are no pickle, and whatever the class of a tuple raises."""
    try:
        bundles: list[Bundle] = pickle.loads(payload)
    except (pickle.UnpicklingError, EOFError) as error:
        raise ProtocolError(f"bundles cannot be decoded: {error}; are versions mixed?") from error
    return bundles


def encode_feedback(messages: Sequence[FeedbackMessage], sent_ns: int) -> bytes:
    """``sent_ns``: by a clock that only processes of this machine have in common."""
    if len(messages) == 1:  # after a long call: marshal knows only numbers and tuples, and takes half the time
        _, edge, task, version, message = messages[0]
        number = NUMBERS.get(type(message))
        if number is not None:
            return _ONE_MESSAGE + marshal.dumps((sent_ns, edge, task, version, number, tuple(message)), MARSHAL_VERSION)
    return _SENT.pack(sent_ns) + encode([_numbered(*message) for message in messages])


def _numbered(_: int, edge: int, task: int, version: int, message: Message) -> Any:
    number = NUMBERS.get(type(message))
    fields = message if number is None else tuple(message)
    return edge, task, version, number, fields


def decode_feedback(payload: memoryview) -> tuple[list[FeedbackMessage], int]:
    """The messages, and when they were sent."""
    try:
        if payload[: len(_ONE_MESSAGE)] == _ONE_MESSAGE:
            sent_ns, edge, task, version, number, fields = marshal.loads(payload[len(_ONE_MESSAGE) :])
            return [_named(edge, task, version, number, fields)], sent_ns
        (sent_ns,) = _SENT.unpack_from(payload)
        messages = pickle.loads(payload[_SENT.size :])
        return [_named(*message) for message in messages], sent_ns
    except Exception as error:
        raise ProtocolError(f"feedback messages cannot be decoded: {error}; are versions mixed?") from error


def _named(edge: int, task: int, version: int, number: int | None, fields: Message) -> FeedbackMessage:
    """``number``: what the message is, if it is one of Tailrace's own; if not, ``fields`` is the message itself."""
    return feedback_message(edge, task, version, fields if number is None else NUMBERED[number](*fields))


def encode_numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def decode_numbers(payload: memoryview) -> tuple[int, ...]:
    try:
        return struct.unpack(f"<{len(payload) // 8}Q", payload)
    except struct.error as error:
        raise ProtocolError(f"numbers cannot be decoded: {error}; are versions mixed?") from error


def encode_folds(folds: Sequence[Fold], sent_ns: int) -> bytes:
    """``sent_ns``: by a clock that only processes of this machine have in common."""
    if len(folds[0]) == 1 and not folds[1] and not folds[2]:  # after a long call: a loop would take most of the time
        ((emission, ids),) = folds[0].items()
        return _ONE_ACK.pack(sent_ns, 1, 0, 0, emission, ids)
    numbers = [number for fold in folds for pair in fold.items() for number in pair]
    both, complete, durable = folds
    return struct.pack(f"<QIII{len(numbers)}Q", sent_ns, len(both), len(complete), len(durable), *numbers)


def decode_folds(payload: memoryview) -> tuple[tuple[Fold, Fold, Fold], int]:
    """The folds, and when they were sent."""
    try:
        sent_ns, *lengths = struct.unpack_from("<QIII", payload)
        numbers = struct.unpack_from(f"<{2 * sum(lengths)}Q", payload, 20)
    except struct.error as error:
        raise ProtocolError(f"acks cannot be decoded: {error}; are versions mixed?") from error
    folds: list[Fold] = []
    position = 0
    for length in lengths:
        end = position + 2 * length
        folds.append(dict(zip(numbers[position:end:2], numbers[position + 1 : end : 2], strict=True)))
        position = end
    both, complete, durable = folds
    return (both, complete, durable), sent_ns
