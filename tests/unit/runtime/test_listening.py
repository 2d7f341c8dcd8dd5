"""Ports come from a range if there is one, and addresses from the node if it names some."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from kit.network.ports import HERE, free_ports
from tailrace.errors import OptionError
from tailrace.runtime import listening
from tailrace.runtime.listening import (
    WORKER_ADDRESS,
    WORKER_BIND,
    Place,
    Ports,
    listen,
    listen_as_worker,
    place_of_worker,
    ports_of,
    why_not_bind,
)
from tailrace.runtime.options import RunSettings


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        (20_000, Ports(20_000, 20_000)),
        ("20000", Ports(20_000, 20_000)),
        ("20000-20100", Ports(20_000, 20_100)),
        (" 20000 - 20100 ", Ports(20_000, 20_100)),
        (None, None),
    ],
)
def test_ports(value: Any, ports: Ports | None) -> None:
    assert ports_of(value) == ports == RunSettings(port=value).ports
    assert ports is None or ports_of(str(ports)) == ports


@pytest.mark.parametrize("value", [0, -1, 65_536, True, 1.5, "", "http", "20100-20000", "1-", "-5", "1-2-3", [1]])
def test_what_is_no_port(value: Any) -> None:
    with pytest.raises(OptionError) as refusal:
        RunSettings(port=value)
    assert str(refusal.value) == (f"neither a port nor a range of ports: port={value!r}; did you mean 20000-20100?")


def test_each_takes_the_first_that_is_free() -> None:
    ports = free_ports(3)
    with ExitStack() as stack:
        taken = [stack.enter_context(listen(HERE, ports, 1)) for _ in range(3)]
        assert [one.getsockname()[1] for one in taken] == [ports.first, ports.first + 1, ports.last]
        with pytest.raises(OptionError) as refusal:
            listen(HERE, ports, 1)
        assert str(refusal.value) == (
            f"no port is free: address=127.0.0.1 port={ports}; every process of a run on a machine takes one, "
            "and its limits another: is the range too small?"
        )
        taken[1].close()
        again = stack.enter_context(listen(HERE, ports, 1))
        assert again.getsockname()[1] == ports.first + 1


def test_an_address_of_another_machine_is_not_a_port_that_is_taken() -> None:
    with pytest.raises(OSError, match=r"(?i)assign requested address"):
        listen("203.0.113.1", free_ports(2), 1)


def test_a_worker_waits_for_the_port_of_its_predecessor(monkeypatch: pytest.MonkeyPatch) -> None:
    ports, place = free_ports(1), Place(HERE, HERE)
    predecessor = listen(HERE, ports, 1)
    monkeypatch.setattr(listening.time, "sleep", lambda seconds: predecessor.close())
    listen_as_worker(place, ports, 1).close()
    monkeypatch.setattr(listening, "FREE_S", 0.0)
    with listen(HERE, ports, 1), pytest.raises(OptionError, match="no port is free"):
        listen_as_worker(place, ports, 1)


@pytest.mark.parametrize("address", ["203.0.113.1", "no.such.host.invalid"])
def test_a_worker_whose_address_is_not_of_its_machine_says_so(address: str) -> None:
    with pytest.raises(OptionError) as refusal:
        listen_as_worker(Place(address, HERE), None, 1)
    assert str(refusal.value).startswith(f"a worker cannot listen: host={socket.gethostname()} address={address} cause")
    assert str(refusal.value).endswith("; is TAILRACE_WORKER_BIND that of another machine?")


def test_where_a_worker_listens() -> None:
    own, there = "10.1.2.3", "203.0.113.1"
    assert place_of_worker(own, {}) == Place(own, own)
    assert place_of_worker(own, {WORKER_BIND: "0.0.0.0"}) == Place("0.0.0.0", own)
    assert place_of_worker(own, {WORKER_ADDRESS: there}) == Place(own, there), "translated on the way"
    assert place_of_worker(own, {WORKER_ADDRESS: HERE}) == Place(HERE, HERE), "another address of this machine"
    both = {WORKER_ADDRESS: there, WORKER_BIND: HERE}
    assert place_of_worker(own, both) == Place(HERE, there)
    assert place_of_worker(HERE, both) == Place(HERE, HERE), "nobody else reaches a worker on loopback"


def test_what_can_be_listened_on() -> None:
    assert why_not_bind(HERE) is None
    assert re.search(r"(?i)assign requested address", str(why_not_bind("203.0.113.1")))
