"""Rules about commits that take time, each broken on purpose: see ``mutations``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from broken_protocol import Patch

from tailrace.core.protocol.acks import fold_into
from tailrace.core.tasks.commit_sink import CommitSinkStage


def durable_when_begun() -> Patch:
    original = CommitSinkStage.begin_commit

    def begin_commit(self: CommitSinkStage) -> Callable[[], None]:
        carry_out = original(self)
        for owner, fold in self._waiting.items():
            fold_into(self._acks[owner].durable, fold)
        self._waiting = {}
        return carry_out

    return patch.object(CommitSinkStage, "begin_commit", begin_commit)


def written_during_a_commit() -> Patch:
    def hold(self: CommitSinkStage, *bundle: Any) -> int:
        emission, split = bundle[:2]
        ids, waits = self._take(*bundle)
        if waits:
            owner = self._owners[split]
            ack = self._new_ack(emission, owner)
            self._wait(emission, owner, ack)
            ids ^= ack
        return ids

    return patch.object(CommitSinkStage, "_hold", hold)


def durable_when_held() -> Patch:
    original = CommitSinkStage._write_held

    def write_held(self: CommitSinkStage, ack: int, emission: int, split: int, *rest: Any) -> None:
        original(self, ack, emission, split, *rest)
        fold_into(self._acks[self._owners[split]].durable, self._waiting.pop(self._owners[split], {}))

    return patch.object(CommitSinkStage, "_write_held", write_held)
