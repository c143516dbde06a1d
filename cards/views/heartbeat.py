"""Renders cards of the heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from cards.json_data import iso_timestamp
from cards.views.costs import cap_reached_text
from storage.records.autonomy import (
    HeartbeatClaim,
    HeartbeatOutcome,
    HeartbeatRun,
    HeartbeatStatus,
    HeartbeatTask,
    TaskFileState,
)
from storage.records.usage import BudgetScope, SpendingCap

_MAX_LINE = 160
_MAX_EVIDENCE = 80
_MAX_SHOWN = 10


def heartbeat_card(said: str, claims: Sequence[HeartbeatClaim], words: TextCatalog) -> model.Card:
    """A message to the owner; `said` is the model's Markdown. Each claim says whether it is backed,
    because the message itself may say anything."""
    blocks: list[model.Block] = [model.TextBlock(said)] if said else []
    lines = "\n".join(f"- {_claim_text(each, words)}" for each in claims)
    if lines:
        blocks.append(model.TextBlock(lines))
    blocks.append(model.NoteBlock(words("heartbeat.note")))
    first = said or (claims[0].did if claims else "")
    return model.titled_card(
        words("heartbeat.title"),
        *blocks,
        summary=words("heartbeat.summary", text=formats.single_line(first, _MAX_LINE)),
    )


def pending_card(pending: Sequence[HeartbeatTask], words: TextCatalog) -> model.Card:
    """The open lines as they are, for an installation without a model."""
    return model.titled_card(
        words("heartbeat.title"),
        model.TextBlock(words("heartbeat.no_model_text")),
        model.TextBlock(_task_lines(pending, words)),
    )


def cap_reached_card(used: SpendingCap, cap: SpendingCap, words: TextCatalog) -> model.Card:
    return model.notice_card(
        words("heartbeat.title"),
        words("heartbeat.cap_text", why=cap_reached_text(BudgetScope.HEARTBEAT, used, cap, words)),
        tone=model.CardTone.WARN,
    )


def file_unusable_card(state: TaskFileState, words: TextCatalog) -> model.Card:
    return model.notice_card(
        words("heartbeat.title"), words(f"heartbeat.file_{state}"), tone=model.CardTone.WARN
    )


def heartbeat_status_card(
    status: HeartbeatStatus, words: TextCatalog, *, zone: ZoneInfo, news: str
) -> model.Card:
    """The heartbeat's state. `news` is the text key of the change just made."""
    facts = [(words("heartbeat.state"), words("heartbeat.on" if status.is_on else "heartbeat.off"))]
    if status.every_minutes:
        facts.append((words("heartbeat.every"), words("heartbeat.minutes", n=status.every_minutes)))
    if status.hours:
        facts.append((words("heartbeat.hours"), status.hours))
    if status.next_due is not None:
        facts.append((words("heartbeat.next"), formats.date_time(status.next_due, zone)))
    if status.cap_micros:
        spent, cap = formats.money(status.spent_micros), formats.money(status.cap_micros)
        facts.append((words("heartbeat.spent"), words("heartbeat.spent_of", spent=spent, cap=cap)))
    blocks: list[model.Block] = [model.TextBlock(words(news))] if news else []
    blocks.append(model.FieldsBlock(tuple(facts)))
    if status.chat is None:
        blocks.append(model.TextBlock(words("heartbeat.no_chat_text")))
    if status.pending:
        blocks.append(model.TextBlock(_task_lines(status.pending, words)))
    else:
        blocks.append(model.TextBlock(words(f"heartbeat.file_{status.file_state}")))
    if status.runs:
        lines = "\n".join(f"- {_run_text(each, words, zone)}" for each in status.runs)
        blocks.append(model.TextBlock(f"**{words('heartbeat.last')}**\n{lines}"))
    blocks.append(model.NoteBlock(words("heartbeat.hint")))
    return model.titled_card(words("heartbeat.title"), *blocks)


def heartbeat_log_card(
    runs: Sequence[HeartbeatRun], words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    lines = []
    for each in runs:
        lines.append(f"- {_run_text(each, words, zone)}")
        lines += [f"  - {_claim_text(claim, words)}" for claim in each.claims]
    text = "\n".join(lines) or words("heartbeat.log_empty")
    return model.titled_card(words("heartbeat.log"), model.TextBlock(text))


def heartbeat_status_data(status: HeartbeatStatus) -> dict[str, Any]:
    return {
        **asdict(status),
        "next_due": iso_timestamp(status.next_due),
        "runs": [heartbeat_run_data(each) for each in status.runs],
    }


def heartbeat_run_data(run: HeartbeatRun) -> dict[str, Any]:
    times = {name: iso_timestamp(getattr(run, name)) for name in ("started_at", "ended_at")}
    return asdict(run) | times


def _run_text(run: HeartbeatRun, words: TextCatalog, zone: ZoneInfo) -> str:
    parts = [
        formats.date_time(run.started_at, zone),
        words(f"heartbeat.outcome.{run.outcome}"),
        ", ".join(words(f"heartbeat.reason.{each}") for each in run.reasons),
    ]
    if run.note:
        parts.append(formats.escape_markdown(words.get_or_literal(run.note), _MAX_LINE))
    if run.outcome in {HeartbeatOutcome.SAID, HeartbeatOutcome.DID} and run.text:
        parts.append(f"“{formats.escape_markdown(run.text, _MAX_EVIDENCE)}”")
    return " · ".join(parts)


def _claim_text(claim: HeartbeatClaim, words: TextCatalog) -> str:
    text = formats.escape_markdown(claim.text, _MAX_EVIDENCE)
    did = formats.escape_markdown(claim.did, _MAX_LINE)
    if not claim.is_backed:
        return words("heartbeat.claim_open", text=text, did=did)
    if claim.evidence == "told":
        return words(
            "heartbeat.claim_told" if claim.is_verified else "heartbeat.claim_only_told", text=text
        )
    shown = formats.escape_markdown(claim.evidence, _MAX_EVIDENCE)
    if not claim.is_verified:
        shown = words("heartbeat.unverified", evidence=shown)
    return words("heartbeat.claim_done", text=text, did=did, evidence=shown)


def _task_lines(tasks: Sequence[HeartbeatTask], words: TextCatalog) -> str:
    lines = [f"- {formats.escape_markdown(each.text, _MAX_LINE)}" for each in tasks[:_MAX_SHOWN]]
    if len(tasks) > _MAX_SHOWN:
        lines.append(words("heartbeat.more", n=len(tasks) - _MAX_SHOWN))
    return "\n".join(lines)
