"""The bytes of what clients and the driver tell each other about a limit. Numbers only: nothing is unpickled."""

from __future__ import annotations

import math
import struct

from tailrace.calls.limits.messages import Reply, Request
from tailrace.errors import ProtocolError

REQUEST = 17
REPLY = 18
"""Kinds of frames, besides those of links."""

MOST_WANTS = 100_000
"""Grants that one client may wait for."""

MAX_BYTES = 1 << 20
"""A frame with more is not of a client: ``MOST_WANTS`` costs take less."""

_REQUEST = struct.Struct("<dIIdIIdI")
_REPLY = struct.Struct("<qIdIId?I")
_BROKEN = "a message about a limit cannot be decoded: {}; are versions mixed?"


def encode_request(request: Request) -> bytes:
    head = _REQUEST.pack(
        *(request.spare, request.permits, request.returned, request.settled),
        *(request.attempts, request.throttled, request.retry_after_s, len(request.wants)),
    )
    return head + struct.pack(f"<{len(request.wants)}d", *request.wants)


def decode_request(payload: memoryview) -> Request:
    try:
        spare, permits, returned, settled, attempts, throttled, retry_after_s, count = _REQUEST.unpack_from(payload)
        wants = struct.unpack(f"<{count}d", payload[_REQUEST.size :])
    except struct.error as error:
        raise ProtocolError(_BROKEN.format(error)) from error
    amounts = (spare, retry_after_s, *wants)
    if not (math.isfinite(settled) and all(math.isfinite(amount) and amount >= 0 for amount in amounts)):
        raise ProtocolError(_BROKEN.format("an amount is not a number, zero or more"))
    return Request(wants, spare, permits, returned, settled, attempts, throttled, retry_after_s)


def encode_reply(reply: Reply) -> bytes:
    return _REPLY.pack(
        *(reply.now_ns, reply.granted, reply.spare, reply.permits),
        *(reply.share, reply.advance, reply.busy, reply.clients),
    )


def decode_reply(payload: memoryview) -> Reply:
    try:
        return Reply(*_REPLY.unpack(payload))
    except struct.error as error:
        raise ProtocolError(_BROKEN.format(error)) from error
