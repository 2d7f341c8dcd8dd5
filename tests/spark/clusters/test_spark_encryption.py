"""A Spark that encrypts its network traffic: a run on it is encrypted as well, without being told."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from kit.network.sniffing import Sniffer
from kit.runs import coordinator, durable, finish, kill
from kit.spark import Sessions, running_on, standalone_cluster
from tailrace.runtime.listening import WORKER_ADDRESS
from tailrace.spark.doctor import examine
from tailrace.testing.namespaces import Namespaces, why_no_namespaces
from tailrace.testing.processes import wait_until

ROWS = 3_000
MARKER, LIMIT = "no-stranger-may-read-this", "limit-that-no-stranger-knows"
SECRET = {"spark.authenticate": "true", "spark.authenticate.secret": "of the cluster"}
CRYPTO = SECRET | {"spark.network.crypto.enabled": "true"}
OWN_NETWORK = ("10.214.7.2", "10.214.7.3")
NO_NAMESPACES = why_no_namespaces()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(280),
    pytest.mark.skipif(NO_NAMESPACES is not None, reason=f"no network namespaces: {NO_NAMESPACES}"),
]


@pytest.fixture(scope="module")
def network() -> Iterator[Namespaces]:
    with Namespaces(2) as network:
        yield network


@pytest.fixture(scope="module")
def spark(sessions: Sessions, network: Namespaces, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """On two machines whose Spark encrypts. Their workers have a network of their own."""
    own = dict(zip(network.machines, OWN_NETWORK, strict=True))
    for machine, address in own.items():
        command = ["ip", "-n", machine.name, "addr", "add", f"{address}/24", "dev", "eth0"]
        subprocess.run(command, check=True)
    hosts = {
        machine.address: [*machine.prefix, "env", f"{WORKER_ADDRESS}={address}"] for machine, address in own.items()
    }
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", " ".join(f"'-D{key}={value}'" for key, value in CRYPTO.items()))
        with standalone_cluster(sessions, folder, network.address, hosts) as (url, _):
            conf = {"spark_executor_memory": "512m", "spark_executor_cores": "2"}
            conf |= {"spark_driver_host": network.address, "spark_driver_bindAddress": network.address}
            conf |= {key.replace(".", "_"): value for key, value in CRYPTO.items()}
            yield sessions.get(url, **conf)


def mark(number: int) -> str:
    return f"{MARKER} {number}"


def topology(out: Any) -> tr.Topology:
    topology = tr.Topology("hidden")
    numbers = topology.source("numbers", tr.at_rate(range(ROWS), 600))
    numbers.map("mark", mark, tasks=3).map("again", str, tasks=3).sink("out", out)
    return topology


@pytest.mark.parametrize("plaintext", [True, False])
def test_nobody_on_the_network_reads_a_tuple(plaintext: bool, spark: SparkSession, network: Namespaces) -> None:
    out = tr.to_list()
    options: dict[str, Any] = {"plaintext": True} if plaintext else {}
    with Sniffer(network.address) as sniffer:
        with running_on(spark, topology(out), workers=3, **options) as run:
            wait_until(lambda: durable(run) > ROWS // 3, 60, "a third")
            kill(run, 1)
            finish(run, 120)
        seen, receivers = sniffer.seen, sniffer.receivers_of(MARKER.encode())
        secret = coordinator(run).secret
    assert sorted(out.values) == sorted(mark(number) for number in range(ROWS))
    assert receivers == ({network.address, *OWN_NETWORK} if plaintext else set())
    assert secret not in seen and b"PRIVATE KEY" not in seen, "Spark encrypts them"


@pytest.mark.parametrize("plaintext", [True, False])
def test_calls_of_a_query_share_a_limit_that_nobody_reads(
    plaintext: bool, spark: SparkSession, network: Namespaces
) -> None:
    spark.conf.set("spark.tailrace.plaintext", str(plaintext).lower())
    label = tr.udf("string", calls=tr.Calls(limit=tr.limit(LIMIT, per_s=2000)))(lambda number: f"n{number}")
    with Sniffer(network.address) as sniffer:
        rows = spark.range(0, 500, 1, 4).select(label("id").alias("label")).collect()
        seen = sniffer.seen
    spark.conf.unset("spark.tailrace.plaintext")
    assert sorted(row.label for row in rows) == sorted(f"n{number}" for number in range(500))
    assert (LIMIT.encode() in seen) is plaintext


def test_the_doctor_says_so(spark: SparkSession) -> None:
    found = {finding.what: finding for finding in examine(spark)}
    assert found["encryption"].ok, found
    assert found["encryption"].detail.startswith("on, as spark.network.crypto.enabled=true: TLS 1.3 by OpenSSL")
