"""What a page is shown, and how it is put on the wire: fragments that carry id and revision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias, assert_never

from bot.transports.web.files import attachment_card
from bot.transports.web.ports import CardShown
from cards.model import Card
from cards.render.web import WebFragment, render, render_markdown
from cards.words import Words
from storage.records.messages import MessageIn, OutboxId

Frame: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """An answer in the making, shown in the place of its card's `revision`."""

    outbox_id: OutboxId
    revision: int
    markdown: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The conversation so far, for a page that has just connected."""

    items: tuple[CardShown | MessageIn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Something small: stored, refused, toast, working, alerts."""

    frame: Frame


Shown: TypeAlias = CardShown | MessageIn | Partial | Past | Signal


def card_id(outbox_id: OutboxId) -> str:
    return f"card-{outbox_id}"


def said_id(message_id: str) -> str:
    return f"said-{message_id}"


def frame_of(shown: Shown, words: Words) -> Frame:
    match shown:
        case CardShown() | MessageIn():
            return {"type": "item", **_item(shown, words)}
        case Partial():
            return {"type": "partial", **_partial(shown)}
        case Past(items=items):
            return {"type": "past", "items": [_item(item, words) for item in items]}
        case Signal(frame=frame):
            return frame
        case _:
            assert_never(shown)


@lru_cache(maxsize=128)
def fragment(card: Card, words: Words) -> WebFragment:
    """Rendered once for all open pages of a language."""
    return render(card, words)


def _item(shown: CardShown | MessageIn, words: Words) -> Frame:
    match shown:
        case CardShown(outbox_id=outbox_id, revision=revision, card=card, at=at):
            return {
                "id": card_id(outbox_id),
                "revision": revision,
                "html": fragment(card, words).html,
                "at": at.isoformat(),
                "reply_to": said_id(shown.reply_to) if shown.reply_to else "",
            }
        case MessageIn(message_id=message_id, text=text, sent_at=sent_at, attachments=attached):
            return {
                "id": said_id(message_id),
                "revision": 0,
                "text": text.encode("utf-8", "replace").decode("utf-8"),
                "html": fragment(attachment_card(attached), words).html if attached else "",
                "at": sent_at.isoformat(),
            }
        case _:
            assert_never(shown)


def _partial(shown: Partial) -> Frame:
    return {
        "id": card_id(shown.outbox_id),
        "revision": shown.revision,
        "html": render_markdown(shown.markdown),
        "at": shown.at.isoformat(),
    }
