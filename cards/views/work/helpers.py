"""The helpers that a task's worker has sent off."""

from __future__ import annotations

from collections.abc import Sequence

from cards import formats
from cards.model import Block, Check, Checklist, CheckState, Note, Text
from cards.words import Words
from storage.records.helping import HelperLine, HelperStatus

_LABEL = 60
_MOST = 10

_CHECKS = {
    HelperStatus.ACCEPTED: CheckState.PENDING,
    HelperStatus.RUNNING: CheckState.RUNNING,
    HelperStatus.DONE: CheckState.DONE,
    HelperStatus.FAILED: CheckState.FAILED,
}


def helper_blocks(helpers: Sequence[HelperLine], words: Words) -> list[Block]:
    """The newest ones, with what they are doing; nothing where there are none."""
    if not helpers:
        return []
    shown = helpers[-_MOST:]
    blocks: list[Block] = [
        Text(markdown=words("helpers.title")),
        Checklist(items=tuple(_check(each, words) for each in shown)),
    ]
    if len(helpers) > _MOST:
        blocks.append(Note(markdown=words("helpers.more", n=len(helpers) - _MOST)))
    return blocks


def _check(helper: HelperLine, words: Words) -> Check:
    return Check(
        label=formats.line(helper.label, _LABEL),
        state=_CHECKS[helper.status],
        detail=words(f"helpers.status.{helper.status}"),
    )
