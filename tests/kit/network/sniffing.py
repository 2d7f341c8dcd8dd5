"""Somebody who reads all that goes through a network, and writes it down. Needs Linux and root."""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
from types import TracebackType

ALL_PROTOCOLS = 3
OF_PACKETS, JOIN, EVERYTHING = 263, 1, 1  # of Linux's ``if_packet.h``: what others say to each other as well
DESTINATION = slice(14 + 16, 14 + 20)  # in an IPv4 packet on Ethernet
PACKET_BYTES = 1 << 16
BUFFER_BYTES = 8 << 20


class Sniffer:
    """A context. While it lasts, it reads the network that an address of this machine belongs to."""

    def __init__(self, address: str) -> None:
        command = ["ip", "-o", "-4", "addr", "show", "to", address]
        interface = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._socket.bind((interface, 0))
        everything = struct.pack("iHH8x", socket.if_nametoindex(interface), EVERYTHING, 0)
        self._socket.setsockopt(OF_PACKETS, JOIN, everything)
        self._socket.settimeout(0.1)
        self._packets: list[bytes] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    @property
    def seen(self) -> bytes:
        """The packets so far, one after the other."""
        return b"".join(self._packets)

    def receivers_of(self, words: bytes) -> set[str]:
        """The addresses that these words were sent to."""
        return {socket.inet_ntoa(packet[DESTINATION]) for packet in tuple(self._packets) if words in packet}

    def _read(self) -> None:
        while not self._over.is_set():
            try:
                self._packets.append(self._socket.recv(PACKET_BYTES))
            except TimeoutError:
                pass

    def __enter__(self) -> Sniffer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()
