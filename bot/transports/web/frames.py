"""Frames between server and page: rendered messages and signals to the page, and validated input
from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, assert_never

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bot.transports.web.files import build_attachment_card
from bot.transports.web.ports import HistoryPage, ShownCard
from cards.catalog import TextCatalog
from cards.model import Card
from storage.records.messages import IncomingMessage, OutboxId

if TYPE_CHECKING:
    from cards.render.web import WebFragment

MAX_TEXT = 400_000
MAX_FILES = 10

_Id: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,64}$")]
_Short: TypeAlias = Annotated[str, Field(max_length=64)]


class _InboundFrame(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class SayFrame(_InboundFrame):
    """The page's `id` identifies repeats of the same message."""

    type: Literal["say"]
    id: _Id
    text: str = Field(default="", max_length=MAX_TEXT)
    files: tuple[_Id, ...] = Field(default=(), max_length=MAX_FILES)


class PressFrame(_InboundFrame):
    """`card` is the ID of the item with the button."""

    type: Literal["press"]
    id: _Id
    card: _Short = ""
    token: _Short
    value: str = Field(default="", max_length=2_000)
    form: dict[_Short, Annotated[str, Field(max_length=MAX_TEXT)]] = Field(
        default_factory=dict, max_length=20
    )


class OlderFrame(_InboundFrame):
    """A request for what came `before` a time that the page has received from the server."""

    type: Literal["older"]
    before: AwareDatetime


PageFrame: TypeAlias = SayFrame | PressFrame | OlderFrame

_FRAME_ADAPTER: TypeAdapter[PageFrame] = TypeAdapter(
    Annotated[SayFrame | PressFrame | OlderFrame, Field(discriminator="type")]
)


class WebFrameError(Exception):
    """Invalid frame. The text names the error without quoting input."""


def parse_frame(raw: str) -> PageFrame:
    """Parse a frame; lone surrogates, which JSON permits, become `?`."""
    try:
        whole = json.dumps(json.loads(raw), ensure_ascii=False).encode("utf-8", "replace")
        return _FRAME_ADAPTER.validate_json(whole)
    except ValidationError as problem:
        places = sorted({".".join(map(str, error["loc"])) for error in problem.errors()})
        raise WebFrameError(f"wrong at {', '.join(places) or 'the top'}") from problem
    except (ValueError, RecursionError) as problem:
        raise WebFrameError("not JSON") from problem


OutboundFrame: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialAnswer:
    """An unfinished answer, shown in place of its card's `revision`."""

    outbox_id: OutboxId
    revision: int
    markdown: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PastConversation:
    """The end of the conversation for a newly connected page, or, if `is_older`, what came before
    the part that a page has.
    """

    page: HistoryPage
    is_older: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSignal:
    """A small event: stored, refused, toast, working, alerts."""

    frame: OutboundFrame


PageUpdate: TypeAlias = ShownCard | IncomingMessage | PartialAnswer | PastConversation | PageSignal


_CARD = "card-"


def card_element_id(outbox_id: OutboxId) -> str:
    return f"{_CARD}{outbox_id}"


def message_element_id(message_id: str) -> str:
    """The element of a message, or of the card that is known by its element."""
    return message_id if message_id.startswith(_CARD) else f"said-{message_id}"


def render_frame(shown: PageUpdate, words: TextCatalog) -> OutboundFrame:
    match shown:
        case ShownCard() | IncomingMessage():
            return {"type": "item", **_item_fields(shown, words)}
        case PartialAnswer():
            return {"type": "partial", **_partial_fields(shown)}
        case PastConversation(page=page):
            return {
                "type": "older" if shown.is_older else "past",
                "items": [_item_fields(item, words) for item in page.items],
                "before": page.before.isoformat() if page.before else None,
            }
        case PageSignal(frame=frame):
            return frame
        case _:
            assert_never(shown)


@lru_cache(maxsize=128)
def render_fragment(card: Card, words: TextCatalog) -> WebFragment:
    """Render once for all open pages of a language."""
    # Imported on first use, with its template engine: many never open a page.
    from cards.render.web import render

    return render(card, words)


def _item_fields(shown: ShownCard | IncomingMessage, words: TextCatalog) -> OutboundFrame:
    match shown:
        case ShownCard(outbox_id=outbox_id, revision=revision, card=card, at=at):
            return {
                "id": card_element_id(outbox_id),
                "revision": revision,
                "html": render_fragment(card, words).html,
                "at": at.isoformat(),
                "reply_to": message_element_id(shown.reply_to) if shown.reply_to else "",
            }
        case IncomingMessage(
            message_id=message_id, text=text, sent_at=sent_at, attachments=attached
        ):
            return {
                "id": message_element_id(message_id),
                "revision": 0,
                "text": text.encode("utf-8", "replace").decode("utf-8"),
                "html": render_fragment(build_attachment_card(attached), words).html
                if attached
                else "",
                "at": sent_at.isoformat(),
            }
        case _:
            assert_never(shown)


def _partial_fields(shown: PartialAnswer) -> OutboundFrame:
    from cards.render.web import render_markdown

    return {
        "id": card_element_id(shown.outbox_id),
        "revision": shown.revision,
        "html": render_markdown(shown.markdown),
        "at": shown.at.isoformat(),
    }
