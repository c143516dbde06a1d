"""Renders cards about the triggers of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from storage.records.triggers import Trigger, TriggerFiring

_MAX_SHOWN = 80
_MAX_LISTED = 50


class ListedTrigger(Protocol):
    @property
    def trigger(self) -> Trigger: ...
    @property
    def last(self) -> TriggerFiring | None: ...


def triggers_card(
    views: Sequence[ListedTrigger], words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    """All triggers, each with its last firing."""
    if not views:
        return model.titled_card(words("triggers.title"), model.TextBlock(words("triggers.none")))
    rows = []
    for each in views[:_MAX_LISTED]:
        rows.append(f"- {trigger_line(each.trigger, words)}")
        if each.last is not None:
            at = formats.date_time(each.last.fired_at, zone)
            told = each.last.task_id or formats.single_line(each.last.note, _MAX_SHOWN)
            rows.append(f"  - {words('triggers.last', at=at, told=told or '–')}")
    text = model.TextBlock("\n".join(rows))
    return model.titled_card(words("triggers.title"), text, model.NoteBlock(words("triggers.hint")))


def trigger_added_card(trigger: Trigger, words: TextCatalog, *, address: str) -> model.Card:
    """A new trigger. `address` is that of a webhook, which is shown only this once."""
    blocks: list[model.Block] = [model.TextBlock(trigger_line(trigger, words))]
    if address:
        blocks += [
            model.CodeBlock(address),
            model.NoteBlock(words("triggers.secret", id=trigger.id)),
        ]
    return model.titled_card(words("triggers.added"), *blocks, tone=model.CardTone.GOOD)


def trigger_changed_card(trigger: Trigger, words: TextCatalog, *, news: str) -> model.Card:
    """A changed trigger. `news` is on, off or removed."""
    title = words(f"triggers.changed_{news}")
    return model.titled_card(title, model.TextBlock(trigger_line(trigger, words)))


def trigger_line(trigger: Trigger, words: TextCatalog) -> str:
    what = formats.code_text(trigger.pattern or trigger.folder, _MAX_SHOWN)
    kind = words(f"triggers.kind.{trigger.kind}", what=f"`{what}`")
    who = ""
    if trigger.sender:
        who = f" · {words('triggers.by', who=formats.single_line(trigger.sender, _MAX_SHOWN))}"
    off = "" if trigger.enabled else f" · {words('triggers.is_off')}"
    return f"`{trigger.id}` {kind} → **{trigger.workflow}**{who}{off}"


def trigger_data(trigger: Trigger, last: TriggerFiring | None) -> dict[str, Any]:
    """A trigger as JSON for programs, without its token."""
    return {
        "id": trigger.id,
        "kind": trigger.kind.value,
        "workflow": trigger.workflow,
        "chat": trigger.chat_id,
        "enabled": trigger.enabled,
        "pattern": trigger.pattern,
        "by": trigger.sender,
        "folder": trigger.folder,
        "inputs": dict(trigger.inputs),
        "last_task": last.task_id if last else None,
        "last_note": last.note if last else "",
        "last_fired": last.fired_at.isoformat() if last else None,
    }
