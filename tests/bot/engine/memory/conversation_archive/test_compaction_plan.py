"""How often a conversation that goes on and on is summarised, and how long it gets in between."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.engine.memory.conversation_archive.compaction_plan import (
    CompactionLimits,
    LeafPass,
    SessionLength,
    next_pass,
)
from storage.records.conversation_archive import (
    ContextSummary,
    ConversationSummary,
    MessageSize,
    TranscriptRole,
)

_TURNS = 200
_AT = datetime(2026, 1, 1, tzinfo=UTC)


def summary(depth: int, tokens: int) -> ContextSummary:
    made = ConversationSummary(
        id="",
        session_id="",
        depth=depth,
        content="",
        tokens=tokens,
        earliest_at=_AT,
        latest_at=_AT,
        descendants=0,
        descendant_tokens=0,
        source_tokens=0,
        model="",
        created_at=_AT,
    )
    return ContextSummary(ordinal=0, summary=made, through=0)


def run_conversation(limits: CompactionLimits, asked: int, answered: int) -> tuple[int, int]:
    """Sweeps and the greatest length of a conversation whose summaries have the length wanted."""
    items: list[ContextSummary] = []
    messages: list[MessageSize] = []
    sweeps = longest = 0
    for n in range(_TURNS):
        for role, tokens in ((TranscriptRole.USER, asked), (TranscriptRole.ASSISTANT, answered)):
            messages.append(MessageSize(message=n, roles=frozenset({role}), tokens=tokens))
        length = SessionLength(items=items, messages=messages)
        longest = max(longest, length.tokens)
        if length.tokens <= limits.threshold_tokens:
            continue
        sweeps += 1
        while (
            work := next_pass(SessionLength(items=items, messages=messages), limits)
        ) is not None:
            if isinstance(work, LeafPass):
                messages = messages[len(work.messages) :]
                items = [*items, summary(0, limits.leaf_target(work.tokens))]
            else:
                at = items.index(work.parts[0])
                made = summary(work.depth, min(limits.condensed_target, work.tokens - 1))
                items = [*items[:at], made, *items[at + len(work.parts) :]]
    return sweeps, longest


@pytest.mark.parametrize(
    ("window", "asked", "answered", "most"),
    [(12_000, 60, 200, 25), (12_000, 150, 500, 65), (8_000, 60, 200, 40), (32_000, 150, 500, 25)],
)
def test_a_small_window_is_summarised_after_several_turns_and_never_outgrown(
    window: int, asked: int, answered: int, most: int
) -> None:
    limits = CompactionLimits().for_window(window)

    sweeps, longest = run_conversation(limits, asked, answered)

    assert sweeps <= most
    assert longest <= limits.context_tokens
