"""Whether a run, or the calls of a query, are encrypted: as Spark's own traffic is, unless the user says otherwise."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import replace

from tailrace.runtime.encryption.certificate import INSTALL, why_no_certificates
from tailrace.runtime.options import RunSettings
from tailrace.spark.slots import is_local

ENCRYPTS = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption", "spark.ssl.rpc.enabled")
"""Settings that make Spark encrypt its network traffic. ``spark.authenticate`` alone only authenticates peers, as the
run's secret does; ``spark.io.encryption.enabled`` is about files."""

logger = logging.getLogger("tailrace")


def encrypting_setting(conf: Mapping[str, str]) -> str | None:
    """The setting by which Spark encrypts its network traffic, the secrets of runs included; None if it does not."""
    return next((key for key in ENCRYPTS if conf.get(key, "").lower() == "true"), None)


def with_encryption(settings: RunSettings, master: str, conf: Mapping[str, str]) -> RunSettings:
    """The settings with ``encrypt`` decided. Traffic within one machine is encrypted only if the user asks for it.

    Warns if Spark does not encrypt what the encryption rests on.
    """
    encrypts = encrypting_setting(conf) is not None
    if settings.encrypt is None:
        return replace(settings, encrypt=encrypts and not settings.plaintext and not is_local(master))
    if settings.encrypt and not encrypts and not is_local(master):
        logger.warning(
            "the run's secret and the key of its certificate go over the network in clear: Spark, which sends them to "
            "executors, does not encrypt: encrypt=True master=%s: who reads them can join the run; could you set "
            "spark.authenticate=true and spark.network.crypto.enabled=true, or spark.ssl.rpc.enabled=true?",
            master,
        )
    return settings


def describe_encryption(settings: RunSettings, master: str, conf: Mapping[str, str]) -> tuple[bool, str, str]:
    """For the doctor: whether what is wanted is there, what this is about, and whether runs will be encrypted."""
    what, missing = "encryption", why_no_certificates()
    if settings.encrypt:
        asked = encrypting_setting(conf) or "spark.tailrace.encrypt"
        if missing is not None:
            return False, what, f"asked for by {asked}=true: {missing}"
        return True, what, f"on, as {asked}=true: TLS 1.3 by {ssl.OPENSSL_VERSION}"
    if is_local(master):
        why = "all processes are on this machine"
    else:
        why = "told not to" if encrypting_setting(conf) else "Spark's own traffic is not encrypted either"
    takes = "" if missing is None else f", and takes {INSTALL}"
    return True, what, f"off: {why}; encrypt=True switches it on{takes}"
