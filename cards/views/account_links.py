"""Renders the linking of accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import UnlinkAccount
from cards.catalog import TextCatalog
from cards.memory_actions import ChooseMemory
from storage.records.memory import MemoryEntry
from storage.records.people import AccountLinkState, Channel, Member, PersonRole

_MAX_NAME = 60
_MAX_ACCOUNT = 80
_MAX_BUTTONS = 8
_MAX_CHOICES = 5
_MAX_TEXT = 300


def link_code_card(
    code: str, expires_at: datetime, words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    until = formats.time_of_day(expires_at, zone)
    return model.titled_card(
        words("link.code_title"),
        model.TextBlock(words("link.code_text", code=code)),
        model.FieldsBlock(((words("link.code"), code),)),
        model.NoteBlock(words("link.code_note", until=until)),
    )


def link_request_text(payload: Mapping[str, Any], words: TextCatalog) -> str:
    """Describe which accounts would become one person, and which role that person would have."""
    kept, joined = payload["kept"], payload["joined"]
    lines = [
        words("link.ask_text", kept=_side(kept, words), joined=_side(joined, words)),
        words("link.ask_then"),
    ]
    if kept["role"] != joined["role"]:
        lines.append(words("link.ask_rights"))
    return "\n\n".join(lines)


def accounts_card(member: Member, words: TextCatalog) -> model.Card:
    """The accounts of one person. Linked ones have a button that takes them apart."""
    rows = [
        f"- {account_text(each, words)}"
        + ("" if each in member.joined else f" · {words('link.main')}")
        for each in member.accounts
    ]
    blocks: list[model.Block] = [model.TextBlock("\n".join(rows))]
    buttons = tuple(
        model.CardButton(
            words("link.button_unlink", account=account_text(each, words, escaped=False)),
            UnlinkAccount(account=account_name(each)),
        )
        for each in member.joined
    )
    if buttons:
        blocks.append(model.ButtonsBlock(buttons[:_MAX_BUTTONS]))
    blocks.append(model.NoteBlock(words("link.list_note" if buttons else "link.list_none")))
    return model.titled_card(words("link.list_title", n=len(member.accounts)), *blocks)


def link_news_card(
    state: AccountLinkState, accounts: Sequence[tuple[Channel, str]], words: TextCatalog
) -> model.Card:
    """Tells both sides about a link or separation. `accounts` are those of the reader as they are
    now."""
    text = words(f"link.told_{state}")
    listed = "\n".join(f"- {account_text(each, words)}" for each in accounts)
    blocks = [model.TextBlock(text), *([model.TextBlock(listed)] if listed else [])]
    return model.titled_card(
        words(f"link.told_{state}_title"),
        *blocks,
        model.NoteBlock(words(f"link.told_{state}_note")),
        tone=model.CardTone.WARN,
    )


def memory_choices_card(
    choices: Sequence[tuple[MemoryEntry, MemoryEntry]], words: TextCatalog
) -> model.Card:
    """Memories of two accounts that exclude each other."""
    if not choices:
        return model.titled_card(
            words("link.choices_title", n=0), model.TextBlock(words("link.choices_none"))
        )
    blocks: list[model.Block] = [model.TextBlock(words("link.choices_text"))]
    for number, (holds, other) in enumerate(choices[:_MAX_CHOICES], 1):
        lines = (
            f"{number}a. {_memory_text(holds)} `{holds.id}` · *{words('link.choice_holds')}*",
            f"{number}b. {_memory_text(other)} `{other.id}`",
        )
        buttons = (
            model.CardButton(f"{number}a", ChooseMemory(entry_id=holds.id)),
            model.CardButton(f"{number}b", ChooseMemory(entry_id=other.id)),
            model.CardButton(
                words("link.choice_both", n=number), ChooseMemory(entry_id=holds.id, both=True)
            ),
        )
        blocks += [model.TextBlock("\n\n".join(lines)), model.ButtonsBlock(buttons)]
    if len(choices) > _MAX_CHOICES:
        blocks.append(model.NoteBlock(words("pairing.more", n=len(choices) - _MAX_CHOICES)))
    return model.titled_card(
        words("link.choices_title", n=len(choices)), *blocks, tone=model.CardTone.WARN
    )


def memory_choices_data(
    choices: Sequence[tuple[MemoryEntry, MemoryEntry]],
) -> Mapping[str, Any]:
    return {
        "choices": [
            {name: {"id": each.id, "text": each.text} for name, each in pair}
            for pair in (zip(("holds", "other"), both, strict=True) for both in choices)
        ]
    }


def _memory_text(entry: MemoryEntry) -> str:
    return formats.escape_markdown(formats.single_line(entry.text, _MAX_TEXT), _MAX_TEXT)


def account_text(account: tuple[Channel, str], words: TextCatalog, *, escaped: bool = True) -> str:
    channel, external_id = account
    if channel is Channel.WEB:
        return words("channel.web")
    shown = formats.escape_markdown if escaped else formats.single_line
    return f"{words(f'channel.{channel}')} {shown(external_id, _MAX_ACCOUNT)}"


def account_name(account: tuple[Channel, str]) -> str:
    """An account as people type it."""
    return ":".join(account)


def accounts_data(member: Member) -> Mapping[str, Any]:
    return {
        "id": member.person.id,
        "accounts": [
            {"account": account_name(each), "main": each not in member.joined}
            for each in member.accounts
        ],
    }


def _side(side: Mapping[str, Any], words: TextCatalog) -> str:
    accounts = []
    for each in side["accounts"]:
        channel, _, external_id = str(each).partition(":")
        accounts.append(account_text((Channel(channel), external_id), words))
    name = formats.escape_markdown(str(side["name"]), _MAX_NAME)
    role = words(f"people.role_{PersonRole(side['role'])}")
    return f"**{name}** ({role}; {', '.join(accounts)})"
