"""What cannot work is refused in one sentence. Nothing here starts Spark."""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.links.control import Bootstrap
from tailrace.runtime.listening import LOOPBACK, Place
from tailrace.spark.doctor import Diagnosis, Examined, Expected, check_java, examine, judge
from tailrace.spark.encryption import ENCRYPTS, describe_encryption
from tailrace.spark.host import hopeless_cause
from tailrace.spark.probes import Executor, Probed
from tailrace.spark.run import launch_on_spark, options_in, place_of, settings_of
from tailrace.spark.session import local_session
from tailrace.spark.slots import Held, executors_wanted, is_local, total_slots
from tailrace.spark.task import entry

CONNECT = (
    "Spark Connect cannot host workers: it has no way to reach executors; could you use a classic SparkSession, or "
    "tr.udf and tr.map_rows, which run in Spark's own tasks?"
)
STOPPED = "the Spark session has been stopped: workers need one that runs; was spark.stop() called?"


class FakeContext:
    _jsc = None


class FakeSession:
    sparkContext = FakeContext()


def topology() -> tr.Topology:
    topology = tr.Topology("t")
    topology.source("numbers", tr.from_iterable(range(3))).sink("out", tr.to_list())
    return topology


def test_connect() -> None:
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(tr.TopologyError) as caught:
        topology().run(connected)
    assert str(caught.value) == CONNECT
    last = examine(connected)[-1]
    assert (last.ok, last.what, last.detail) == (False, "session", CONNECT)


def test_a_stopped_session() -> None:
    with pytest.raises(tr.TopologyError) as caught:
        topology().run(FakeSession())
    assert str(caught.value) == STOPPED


def test_something_else() -> None:
    with pytest.raises(tr.TopologyError, match=r"not a Spark session: type=builtins\.int; did you mean workers=\?"):
        topology().run(4)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "Java is too old: java={java} version=11; "),
        ('java version "1.8.0_301"', "Java is too old: java={java} version=8; "),
        ("nonsense", "Java does not say its version: java={java} said='nonsense'; does it run at all?"),
        ('openjdk version "17.0.1" 2021', ""),
        ('openjdk version "25" 2025-09-16', ""),
    ],
)
def test_java_versions(said: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = check_java()
    assert finding.ok == (not expected), finding
    if expected:
        assert finding.detail.startswith(expected.format(java=java))
        monkeypatch.setattr("tailrace.spark.session.running_session", lambda: None)
        with pytest.raises(tr.OptionError) as caught:
            local_session()
        assert str(caught.value) == finding.detail


def test_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    needed = "Spark needs Java 17 or later, is a JRE installed?"
    assert check_java().detail == f"no Java found: JAVA_HOME={tmp_path}; {needed}"


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("local", {}, 1),
        ("local[3]", {}, 3),
        ("local[*]", {}, 6),
        ("local[ 4 , 8 ]", {}, 4),
        ("local[*,2]", {"spark.task.cpus": "2"}, 3),
        ("local[2]", {"spark.task.cpus": "0.5"}, 4),
        ("local-cluster[3,2,1024]", {}, 6),
        ("local-cluster[2,3,1024]", {"spark.task.cpus": "2"}, 2),  # one core of each executor is left over
        ("local-cluster[3,1,1024]", {"spark.task.cpus": "2"}, 0),
        ("local-cluster[2,3,1024]", {"spark.executor.cores": "1"}, None),
        ("spark://host:7077", {}, None),
        ("spark://host:7077", {"spark.cores.max": "8"}, 8),
        ("spark://host:7077", {"spark.cores.max": "8", "spark.task.cpus": "2"}, None),
        ("spark://host:7077", {"spark.cores.max": "8", "spark.executor.cores": "3"}, 6),
        ("spark://host:7077", {"spark.cores.max": "8", "spark.executor.cores": "3", "spark.task.cpus": "2"}, 2),
        ("yarn", {"spark.executor.instances": "3"}, 3),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "5", "spark.task.cpus": "2"}, 6),
        ("yarn", {"spark.executor.instances": "3", "spark.dynamicAllocation.enabled": "true"}, None),
        ("k8s://https://host", {}, None),
    ],
)
def test_slots(master: str, conf: dict[str, str], expected: int | None) -> None:
    assert total_slots(master, conf, processors=6) == expected
    assert is_local(master) == master.startswith("local")


def test_unknown_slots_refuse_nobody() -> None:
    held = Held()
    held.take("app", 100, None, "yarn")
    assert held.count("app") == 100
    held.give_back("app", 100)
    with pytest.raises(tr.OptionError, match="yarn has 1 free slot, 2 workers wanted"):
        held.take("app", 2, 1, "yarn")
    assert held.count("app") == 0


def test_options_from_the_configuration() -> None:
    conf = {
        "spark.tailrace.workers": "3",
        "spark.tailrace.maxPending": "10",
        "spark.tailrace.startTimeout": "2.5",
        "spark.tailrace.checkpoint": "some/folder",
        "spark.app.name": "x",
    }
    expected = {"workers": 3, "max_pending": 10, "start_timeout_s": 2.5, "checkpoint": "some/folder"}
    assert options_in(conf) == expected
    assert options_in({"spark.tailrace.max_pending": "10"}) == {"max_pending": 10}
    for name in ("hedge", "replay"):
        found = options_in({f"spark.tailrace.{name}": "fixed_timeout=20"})
        assert found == {"tail": tr.Tail(hedge=tr.fixed_timeout(20))}
    for scope in ("worker", "node"):
        assert options_in({"spark.tailrace.sharedQueues": scope}) == {"tail": tr.Tail(shared_queues=scope)}
    scheduled = {"spark.tailrace.send": "lbf", "spark.tailrace.linkMbps": "2.5"}
    assert options_in(scheduled) == {"tail": tr.Tail(send=tr.lbf()), "link_mbps": 2.5}
    with pytest.raises(tr.OptionError, match="unknown hedging rule: hedge=soon: did you mean one of adaptive_timeout"):
        options_in({"spark.tailrace.replay": "soon"})
    with pytest.raises(tr.OptionError) as caught:
        options_in({"spark.tailrace.workers": "many"})
    assert str(caught.value) == "option in the Spark configuration is not a number: spark.tailrace.workers=many"


def test_where_the_coordinator_listens() -> None:
    assert place_of("local[4]", {"spark.driver.host": "10.1.2.3"}) == LOOPBACK
    assert place_of("spark://m:1", {"spark.driver.host": "127.0.0.1"}) == Place("127.0.0.1", "127.0.0.1")
    both = {"spark.driver.host": "203.0.113.1", "spark.driver.bindAddress": "127.0.0.1"}
    assert place_of("yarn", both) == Place("127.0.0.1", "203.0.113.1")


def test_who_listens_on_all_addresses_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert place_of("yarn", {"spark.driver.host": "203.0.113.1"}) == Place("0.0.0.0", "203.0.113.1")
    (said,) = caplog.messages
    assert said.startswith("the driver listens on all addresses: spark.driver.host=203.0.113.1 is not one of this mach")
    assert said.endswith("should spark.driver.bindAddress say which?")


def test_an_address_that_cannot_be_listened_on_is_refused() -> None:
    """The driver listened on all of them, and said nothing."""
    refusal = r"cannot listen: spark\.driver\.bindAddress=203\.0\.113\.1 cause=.*; is it one of this machine's\?"
    with pytest.raises(tr.OptionError, match=refusal):
        place_of("yarn", {"spark.driver.host": "203.0.113.1", "spark.driver.bindAddress": "203.0.113.1"})
    for address in ("::1", "[2001:db8::7]"):
        with pytest.raises(tr.OptionError, match="the driver listens on IPv4 only: address="):
            place_of("yarn", {"spark.driver.host": address})


@pytest.mark.parametrize("key", ENCRYPTS)
def test_what_is_encrypted(key: str) -> None:
    """What Spark encrypts is, if it leaves the machine; unless the user says otherwise."""
    encrypts, cluster = {key: "true", "spark.authenticate": "true"}, "spark://m:1"
    assert settings_of(cluster, encrypts, {}).encrypt is True
    assert settings_of(cluster, {key: "false", "spark.authenticate": "true"}, {}).encrypt is False
    assert settings_of("local[2]", encrypts, {}).encrypt is False
    assert settings_of("local[2]", encrypts, {"encrypt": True}).encrypt is True
    assert settings_of(cluster, encrypts, {"plaintext": True}).encrypt is False
    assert settings_of(cluster, {**encrypts, "spark.tailrace.plaintext": "true"}, {}).encrypt is False
    assert settings_of(cluster, encrypts, {"encrypt": False}).encrypt is False
    assert settings_of(cluster, {**encrypts, "spark.tailrace.encrypt": "false"}, {}).encrypt is False
    assert settings_of(cluster, {"spark.tailrace.encrypt": "true"}, {}).encrypt is True
    with pytest.raises(tr.OptionError, match="encrypted and in clear at once: encrypt=True plaintext=True"):
        settings_of(cluster, {**encrypts, "spark.tailrace.plaintext": "true"}, {"encrypt": True})


def test_a_secret_that_travels_in_clear_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    settings_of("spark://m:1", {ENCRYPTS[0]: "true"}, {"encrypt": True})
    settings_of("local-cluster[2,1,1024]", {}, {"encrypt": True})
    settings_of("spark://m:1", {}, {})
    assert not caplog.messages
    settings_of("spark://m:1", {}, {"encrypt": True})
    (said,) = caplog.messages
    assert said == (
        "the run's secret and the key of its certificate go over the network in clear: Spark, which sends them to "
        "executors, does not encrypt: encrypt=True master=spark://m:1: who reads them can join the run; could you set "
        "spark.authenticate=true and spark.network.crypto.enabled=true, or spark.ssl.rpc.enabled=true?"
    )


def test_encryption_that_cannot_be_had_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        master, applicationId = "spark://m:1", "app"

    class Session:
        sparkContext = Context()

    class NoHost:
        def __init__(self, *_: Any) -> None: ...
        def close(self) -> None: ...

    conf = {"spark.network.crypto.enabled": "true", "spark.driver.host": "127.0.0.1"}
    monkeypatch.setattr("tailrace.spark.run.check_session", lambda spark: None)
    monkeypatch.setattr("tailrace.spark.run.configuration", lambda spark: conf)
    monkeypatch.setattr("tailrace.spark.run.slots_of", lambda spark: None)
    monkeypatch.setattr("tailrace.spark.run.SparkHost", NoHost)
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(tr.OptionError, match="encryption needs the package cryptography on the driver: python="):
        launch_on_spark(topology(), Session(), {})


def test_the_doctor_says_what_will_be_encrypted_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(master: str, conf: dict[str, str]) -> tuple[bool, str]:
        ok, what, detail = describe_encryption(settings_of(master, conf, {}), master, conf)
        assert what == "encryption"
        return ok, detail

    crypto, cluster = {"spark.network.crypto.enabled": "true"}, "spark://m:1"
    on = f"on, as spark.network.crypto.enabled=true: TLS 1.3 by {ssl.OPENSSL_VERSION}"
    assert said(cluster, crypto) == (True, on)
    assert said(cluster, {"spark.tailrace.encrypt": "true"})[1].startswith("on, as spark.tailrace.encrypt=true: TLS")
    off = "off: Spark's own traffic is not encrypted either; encrypt=True switches it on"
    assert said(cluster, {}) == (True, off)
    assert said(cluster, {**crypto, "spark.tailrace.plaintext": "true"})[1].startswith("off: told not to; encrypt=True")
    assert said("local[2]", crypto)[1].startswith("off: all processes are on this machine; encrypt=True")
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    assert said(cluster, {}) == (True, f"{off}, and takes pip install 'tailrace[encrypt]'")
    ok, detail = said(cluster, crypto)
    assert not ok and detail.startswith("asked for by spark.network.crypto.enabled=true: encryption needs the package")


def test_ports_of_the_configuration() -> None:
    ports = settings_of("spark://m:1", {"spark.tailrace.port": "20000-20100"}, {}).ports
    assert str(ports) == "20000-20100"
    with pytest.raises(tr.OptionError, match="neither a port nor a range of ports: port='http'"):
        settings_of("spark://m:1", {"spark.tailrace.port": "http"}, {})


def task_of(version: str) -> Any:
    return entry(Bootstrap(("127.0.0.1", 1), b"", 0, 1), [], version)


def why_not(task: Any) -> str:
    (batch,) = task([])
    why: str = batch.column(0).to_pylist()[0]
    return why


def test_an_executor_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("1.0")
    monkeypatch.setattr("socket.gethostname", lambda: "node-7")
    monkeypatch.setitem(sys.modules, "tailrace", None)
    why = why_not(task)
    assert why.startswith(
        f"an executor cannot import tailrace: executor=node-7 python={sys.executable} driver=1.0 "
        f"driver_python={sys.executable} cause="
    )
    assert why.endswith("; is PYSPARK_PYTHON a Python that has it?")


def test_an_executor_with_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node-7")
    here = f"executor=node-7 python={sys.executable} version={tr.__version__}"
    assert why_not(task_of("0.9")) == (
        f"an executor has another tailrace: {here} driver=0.9 driver_python={sys.executable}; "
        "is PYSPARK_PYTHON another Python, or one of them old?"
    )


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (
            "(10.0.0.5 executor 1): [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that "
            "in driver: 3.11, PySpark cannot run with different minor versions.",
            "an executor has another Python: executor=10.0.0.5 python=3.10 driver=3.11; "
            "is PYSPARK_PYTHON the same everywhere?",
        ),
        (
            'Lost task 0.3 (node-7 executor driver): java.io.IOException: Cannot run program "py": error=2',
            "an executor cannot start Python: executor=node-7 python=py; does PYSPARK_PYTHON exist there?",
        ),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            f"an executor has no pyarrow: driver_python={sys.executable}; is PYSPARK_PYTHON a Python that has it?",
        ),
        ("Python worker exited unexpectedly (crashed)", None),
    ],
)
def test_what_spark_reports_is_put_in_one_sentence(report: str, expected: str | None) -> None:
    assert hopeless_cause(report) == expected


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("local[4]", {}, 1),
        ("local-cluster[3,2,1024]", {}, 3),
        ("spark://host:7077", {"spark.cores.max": "8"}, None),
        ("spark://host:7077", {"spark.cores.max": "8", "spark.executor.cores": "2"}, 4),
        ("yarn", {"spark.executor.instances": "3"}, 3),
        ("yarn", {}, None),
    ],
)
def test_how_many_executors_the_doctor_waits_for(master: str, conf: dict[str, str], expected: int | None) -> None:
    assert executors_wanted(master, conf) == expected


PLACE, EXPECTED = Place("127.0.0.1", "driver-1"), Expected("3.11", "1.0")
HEALTHY = {
    "host": "vm",
    "java": "17.0.1",
    "executable": sys.executable,
    "python": "3.11.4",
    "tailrace": "1.0",
    "pyarrow": "20",
    "cloudpickle": "3",
    "unreachable": "",
}


def examined(report: dict[str, str] | None, error: str = "", slots: int = 2) -> Examined:
    probed = Probed(Executor("5", "node-7", slots), report, error)
    return Examined(probed, judge(probed, PLACE, EXPECTED))


def test_what_the_doctor_says_of_a_healthy_executor() -> None:
    (fine,) = examined(HEALTHY).findings
    assert (fine.ok, fine.what) == (True, "executor 5 on node-7")
    versions = "Java 17.0.1, Python 3.11.4, tailrace 1.0, pyarrow 20, cloudpickle 3"
    assert fine.detail == f"2 slots, {versions}; the driver is reachable"
    (local,) = Examined(Probed(Executor("driver", "127.0.0.1", 4), HEALTHY), []).findings
    assert local.what == "executor on vm"
    (elsewhere,) = examined(HEALTHY | {"executable": "/py"}, slots=1).findings
    assert elsewhere.detail == f"1 slot, {versions}; the driver is reachable (/py)"


def test_what_the_doctor_says_of_an_ill_executor() -> None:
    ill = {"python": "3.12.1", "tailrace": "", "tailrace_error": "gone", "unreachable": "timed out"}
    findings = examined(HEALTHY | {"executable": "/py"} | ill).findings
    assert {(finding.ok, finding.what) for finding in findings} == {(False, "executor 5 on node-7")}
    assert [finding.detail for finding in findings] == [
        "Python 3.12.1 at /py, the driver has 3.11; is PYSPARK_PYTHON the same everywhere?",
        f"cannot import tailrace into /py: gone; is PYSPARK_PYTHON a Python that has it, as {sys.executable} does?",
        "cannot reach the driver at driver-1: timed out; is spark.driver.host an address that executors know, "
        "and no firewall between?",
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("", "it could not be probed: none of its slots was free; is it busy?"),
        ("ExecutorLostFailure (exit code 137)\n\tat org.apache", "a probe failed: ExecutorLostFailure (exit code 137)"),
        (
            'java.io.IOException: Cannot run program "py": error=2',
            "an executor cannot start Python: executor=node-7 python=py; does PYSPARK_PYTHON exist there?",
        ),
    ],
)
def test_what_the_doctor_says_of_an_executor_that_sent_nothing_back(error: str, expected: str) -> None:
    (finding,) = examined(None, error).findings
    assert (finding.ok, finding.detail) == (False, expected)


def test_the_doctor_in_json() -> None:
    found = Diagnosis([check_java()], [examined(HEALTHY), examined(None)]).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["ok"] is False
    assert found["executors"] == [
        {
            "id": "5",
            "host": "node-7",
            "slots": 2,
            "java": "17.0.1",
            "python": "3.11.4",
            "tailrace": "1.0",
            "pyarrow": "20",
            "cloudpickle": "3",
            "executable": sys.executable,
            "ok": True,
            "problems": [],
        },
        {
            "id": "5",
            "host": "node-7",
            "slots": 2,
            **dict.fromkeys(("java", "python", "tailrace", "pyarrow", "cloudpickle", "executable")),
            "ok": False,
            "problems": ["it could not be probed: none of its slots was free; is it busy?"],
        },
    ]
