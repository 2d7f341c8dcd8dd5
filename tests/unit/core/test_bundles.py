"""What travels between tasks is told apart by its first field, and can be divided without losing anything."""

from __future__ import annotations

from tailrace.core.bundles import (
    ACK,
    ATTACHED,
    EMISSION,
    FEEDBACK,
    LINEAGES,
    MESSAGE,
    OFFSET,
    ORIGIN,
    SPLIT,
    VALUES,
    VERSION,
    Bundle,
    FeedbackMessage,
    any_urgent,
    divided,
    has_feedback_messages,
    is_feedback,
    new_bundle,
    some_of,
    tuples_in,
)
from tailrace.policy.groupings.pull.receiver import Revoke

ORIGIN_OF_IT = (3, 1, 9)
WHOLE: Bundle = new_bundle(7, 1, 30, 0b1100, [1, 2, 3], ["x", "y", "z"], ORIGIN_OF_IT, [("a",), None, ("c",)])
PLAIN: Bundle = new_bundle(8, 2, 31, 0b11, None, ["p"])
REPORT: FeedbackMessage = (FEEDBACK, 3, 1, 9, ("report",))


def test_fields_have_names() -> None:
    fields = [WHOLE[EMISSION], WHOLE[SPLIT], WHOLE[OFFSET], WHOLE[ACK], WHOLE[LINEAGES], WHOLE[VALUES]]
    assert fields == [7, 1, 30, 0b1100, [1, 2, 3], ["x", "y", "z"]]
    assert (WHOLE[ORIGIN], WHOLE[ATTACHED]) == (ORIGIN_OF_IT, [("a",), None, ("c",)])
    assert (PLAIN[ORIGIN], PLAIN[ATTACHED]) == (None, None)
    assert (REPORT[VERSION], REPORT[MESSAGE]) == (9, ("report",))


def test_a_feedback_message_is_no_bundle() -> None:
    assert is_feedback(REPORT) and not is_feedback(WHOLE) and not is_feedback(PLAIN)
    assert has_feedback_messages([PLAIN, REPORT]) and not has_feedback_messages([PLAIN, WHOLE])
    assert tuples_in([WHOLE, REPORT, PLAIN]) == 4


def test_parts_of_a_bundle_make_up_its_ack_id() -> None:
    first, rest = divided(WHOLE, 2, 0b1010)
    assert first == new_bundle(7, 1, 30, 0b1010, [1, 2], ["x", "y"], ORIGIN_OF_IT, [("a",), None])
    assert rest == new_bundle(7, 1, 30, 0b0110, [3], ["z"], ORIGIN_OF_IT, [("c",)])
    assert divided(new_bundle(8, 2, 31, 0b11, None, ["p", "q"]), 1, 1)[1] == new_bundle(8, 2, 31, 0b10, None, ["q"])


def test_some_tuples_of_a_bundle_keep_their_names_and_what_is_attached() -> None:
    assert some_of(WHOLE, [0, 2], 5) == new_bundle(7, 1, 30, 5, [1, 3], ["x", "z"], ORIGIN_OF_IT, [("a",), ("c",)])
    assert some_of(PLAIN, [0], 5) == new_bundle(8, 2, 31, 5, None, ["p"])


def test_a_message_that_wants_an_answer_is_urgent() -> None:
    assert not any_urgent([REPORT]) and not any_urgent([])
    assert any_urgent([REPORT, (FEEDBACK, 3, 1, 9, Revoke(answer=True))])
