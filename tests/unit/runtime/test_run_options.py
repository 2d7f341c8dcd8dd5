"""Options of a run are refused by name before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tailrace.errors import OptionError
from tailrace.runtime.options import RunSettings
from tailrace.topology import RunOptions

NO_URI = (
    "could it be a path, on a disk or on a network file system that all workers see? "
    "Object stores have no locks and renames"
)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "option must be a positive number: workers=0; did you mix two up?"),
        ({"workers": True}, "option must be a positive number: workers=True; did you mix two up?"),
        ({"workers": 2.5}, "option must be a whole number: workers=2.5; did you mix two up?"),
        ({"max_deaths": 0.5}, "option must be a whole number: max_deaths=0.5; did you mix two up?"),
        ({"max_pending": "many"}, "option must be a positive number: max_pending='many'; did you mix two up?"),
        (
            {"heartbeat_timeout_s": float("nan")},
            "option must be a positive number: heartbeat_timeout_s=nan; did you mix two up?",
        ),
        (
            {"heartbeat_timeout_s": 0.001},
            "workers say every 0.25 s that they are alive: heartbeat_timeout_s=0.001 least=0.5; is it in seconds?",
        ),
        (
            {"start_timeout_s": float("inf")},
            "option must be a positive number: start_timeout_s=inf; did you mix two up?",
        ),
        ({"checkpoint": 5}, "not a folder: checkpoint=5; did you mix two options up?"),
        ({"checkpoint": ""}, "not a folder: checkpoint=''; did you mix two options up?"),
        ({"checkpoint": "s3://b/x"}, f"not a folder but a URI: checkpoint='s3://b/x': {NO_URI}"),
        ({"checkpoint": Path("s3://b/x")}, f"not a folder but a URI: checkpoint=PosixPath('s3:/b/x'): {NO_URI}"),
        ({"record": "file:///x"}, f"not a folder but a URI: record='file:///x': {NO_URI}"),
        ({"record": ""}, "not a folder: record=''; did you mix two options up?"),
        ({"workers": 10**9}, "too many workers: workers=1000000000 most=1024; did you mean tasks?"),
        ({"link_mbps": 0}, "option must be a positive number: link_mbps=0; did you mix two up?"),
        ({"link_scope": "rack"}, "unknown link scope: link_scope='rack': did you mean 'worker' or 'node'?"),
        (
            {"link_scope": "node"},
            "a node's link without a limit: link_scope='node': how much is it, link_mbps=…?",
        ),
        ({"outgoing_tuples": 1.5}, "option must be a whole number: outgoing_tuples=1.5; did you mix two up?"),
        ({"feedback_share": 3}, "more than a core: feedback_share=3; did you mean 0.03?"),
        ({"feedback_share": 0}, "option must be a positive number: feedback_share=0; did you mix two up?"),
        ({"state": "forget"}, "nothing to do with state: state='forget': did you mean 'restart'?"),
        ({"record": True}, "not a folder: record=True; did you mix two options up?"),
        ({"encrypt": "yes"}, "option must be true or false: encrypt='yes'; did you mix two up?"),
        ({"plaintext": None}, "option must be true or false: plaintext=None; did you mix two up?"),
        (
            {"encrypt": True, "plaintext": True},
            "encrypted and in clear at once: encrypt=True plaintext=True: which of the two?",
        ),
    ],
)
def test_values_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as refusal:
        RunSettings.of(options)
    assert str(refusal.value) == text


def test_an_unknown_option_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(OptionError, match=r"^unknown option: maxpending=…: did you mean max_pending=…\?$"):
        RunSettings.of({"maxpending": 3})
    with pytest.raises(OptionError, match=r"^unknown option: chekpoint=…: did you mean checkpoint=…\?$"):
        RunSettings.of({"chekpoint": "state/"})
    with pytest.raises(OptionError, match=r"^unknown option: colour=…: did you mean one of workers=…, checkpoint=…, "):
        RunSettings.of({"colour": "red"})


def test_every_option_is_described_with_the_type_that_it_has() -> None:
    described, held = get_type_hints(RunOptions), get_type_hints(RunSettings)
    described["workers"] = int  # None stands for the default
    assert described == held
