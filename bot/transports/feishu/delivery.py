"""Delivers one message to Feishu: sends it, updates it, or sends it again if it is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from bot.transports.feishu.api import FeishuError, FeishuErrorKind
from bot.transports.feishu.cardkit import FeishuCardKit
from bot.transports.feishu.documents import (
    DocumentSource,
    FeishuDocuments,
    PublishedDocument,
    document_state,
    parse_document,
)
from bot.transports.feishu.events import build_button_context
from bot.transports.feishu.messages import FeishuFiles, FeishuMessages
from bot.transports.files import FileUnsendable
from bot.transports.limited_dict import LimitedDict
from bot.transports.ports import FileTooLarge, OutboundMessage
from cards.catalog import TextCatalog, catalog_for
from cards.model import (
    Block,
    Card,
    ChecklistBlock,
    CollapsibleBlock,
    FileBlock,
    ImageBlock,
    ProgressBlock,
    TextBlock,
)
from cards.render import text as plain_text
from cards.render.feishu.card import FeishuCard, minimal_card, render
from cards.render.feishu.elements import strip_unfit
from cards.render.feishu.markdown import defuse_mentions
from storage.records.messages import MessagePlacement
from storage.records.people import ChatKind


class FeishuPartKind(StrEnum):
    """How a part is updated: through CardKit, by PATCH, or as edited text."""

    ENTITY = "entity"
    CARD = "card"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuPart:
    kind: FeishuPartKind
    message_id: str
    card_id: str = ""
    sequence: int = 0


@dataclass(slots=True, kw_only=True)
class FeishuPlacement:
    """`files` maps local paths to message IDs, empty for refused ones, `images` to keys, and
    `documents` to what became of them."""

    parts: list[FeishuPart] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    documents: dict[str, PublishedDocument] = field(default_factory=dict)

    def to_placed(self) -> MessagePlacement:
        ids = [part.message_id for part in self.parts] + list(filter(None, self.files.values()))
        return MessagePlacement(
            message_ids=tuple(ids),
            state={
                "parts": [
                    {"k": p.kind.value, "m": p.message_id, "c": p.card_id, "s": p.sequence}
                    for p in self.parts
                ],
                "files": dict(self.files),
                "images": dict(self.images),
                **(
                    {"documents": {p: document_state(d) for p, d in self.documents.items()}}
                    if self.documents
                    else {}
                ),
            },
        )


def parse_placement(placed: MessagePlacement | None) -> FeishuPlacement:
    """Parse a stored placement; invalid parts are treated as plain cards."""
    if placed is None:
        return FeishuPlacement()
    files = _string_map(placed.state.get("files"))
    stored = placed.state.get("parts")
    parts = [_parse_part(one) for one in stored] if isinstance(stored, list) else []
    good = [part for part in parts if part is not None]
    if not good:
        sent = set(files.values())
        ids = [one for one in placed.message_ids if one not in sent]
        good = [FeishuPart(kind=FeishuPartKind.CARD, message_id=one) for one in ids]
    return FeishuPlacement(
        parts=good,
        files=files,
        images=_string_map(placed.state.get("images")),
        documents=_parse_documents(placed.state.get("documents")),
    )


def _parse_documents(stored: Any) -> dict[str, PublishedDocument]:
    if not isinstance(stored, Mapping):
        return {}
    parsed = {str(path): parse_document(each) for path, each in stored.items()}
    return {path: each for path, each in parsed.items() if each is not None}


def _parse_part(stored: Any) -> FeishuPart | None:
    if not isinstance(stored, Mapping) or not stored.get("m"):
        return None
    kinds = {kind.value: kind for kind in FeishuPartKind}
    sequence = stored.get("s")
    return FeishuPart(
        kind=kinds.get(str(stored.get("k")), FeishuPartKind.CARD),
        message_id=str(stored["m"]),
        card_id=str(stored.get("c") or ""),
        sequence=sequence if isinstance(sequence, int) else 0,
    )


def _string_map(stored: Any) -> dict[str, str]:
    if not isinstance(stored, Mapping):
        return {}
    return {str(key): str(value) for key, value in stored.items()}


log = logging.getLogger(__name__)

_MAX_TEXT = 20_000
_MAX_UNSENT = 200
_CARDKIT_RETRY_DELAY = 3600.0
CardJson: TypeAlias = Mapping[str, Any]


class FeishuPreparedMessage:
    """A rendered message: its cards, and the list of what the platform cannot show."""

    def __init__(self, message: OutboundMessage, rendered: FeishuCard, words: TextCatalog) -> None:
        self.message = message
        self.words = words
        self.parts = rendered.parts
        self.answer = rendered.answer
        self.degraded = list(rendered.degraded)

    @property
    def fallback(self) -> str:
        """The whole message as plain text, if its card is refused."""
        card = self.message.card
        text = card.fallback or plain_text.render(card).text or card.summary
        return strip_unfit(text)[:_MAX_TEXT] or "…"

    def text_of(self, index: int) -> str:
        """Return the text of a message in place of a part. Mentions would work there, too."""
        return defuse_mentions(self.fallback if index == 0 else _card_text(self.parts[index]))


@dataclass(kw_only=True, eq=False)
class FeishuDelivery:
    messages: FeishuMessages
    cardkit: FeishuCardKit
    files: FeishuFiles
    documents: FeishuDocuments
    now: Callable[[], float]
    on_cardkit: Callable[[FeishuError | None], None]
    _unsent_entities: LimitedDict[str, str] = field(
        default_factory=lambda: LimitedDict(_MAX_UNSENT), init=False
    )
    _cardkit_off_until: float = field(default=0.0, init=False)

    async def prepare(
        self, message: OutboundMessage, placement: FeishuPlacement, *, streaming: bool = False
    ) -> FeishuPreparedMessage:
        """Upload images and render. Images that cannot be sent are named instead."""
        notes: list[str] = []
        for image in _iter_blocks(message.card, ImageBlock):
            if image.path not in placement.images:
                with _noting_refusal("image", notes):
                    placement.images[image.path] = await self.files.upload_image(image.path)
        words = catalog_for(message.language)
        draw = partial(
            render,
            message.card,
            words,
            images=dict(placement.images),
            documents={
                path: each.url or each.problem for path, each in placement.documents.items()
            },
            callback_values=build_button_context(message.chat),
            streaming=streaming,
        )
        # In a thread, since a long text would block the event loop.
        made = await asyncio.to_thread(draw) if _is_long(message.card) else draw()
        shown = FeishuPreparedMessage(message, made, words)
        shown.degraded.extend(notes)
        return shown

    async def publish_documents(self, message: OutboundMessage, placement: FeishuPlacement) -> None:
        """Make documents of the files that shall be some; the placement is stored meanwhile."""
        for block in _iter_blocks(message.card, FileBlock):
            known = placement.documents.get(block.path)
            if not block.document_title or (known is not None and known.is_settled):
                continue
            chat = message.chat
            group = chat.external_id if chat.kind is ChatKind.GROUP else ""

            async def save(document: PublishedDocument, path: str = block.path) -> None:
                placement.documents[path] = document
                if message.on_part is not None:
                    await message.on_part(placement.to_placed())

            await self.documents.publish(
                DocumentSource(
                    path=block.path,
                    title=strip_unfit(block.document_title),
                    readers=tuple(filter(None, (block.document_owner, group))),
                ),
                known,
                save=save,
            )

    async def send_part(
        self, shown: FeishuPreparedMessage, index: int, *, uuid: str, reply_to: str
    ) -> FeishuPart:
        """Send one part as a card entity if it will change, otherwise as a card or text."""
        card = shown.parts[index]
        try:
            if index == 0 and self._needs_entity(shown):
                part = await self._send_entity(shown, card, uuid, reply_to)
                if part is not None:
                    return part
            message_id = await self._post_message(shown, "interactive", card, uuid, reply_to)
            return FeishuPart(kind=FeishuPartKind.CARD, message_id=message_id)
        except FeishuError as error:
            if error.kind is not FeishuErrorKind.CARD:
                raise
            log.warning("feishu: card refused, sent as text: %s", error)
            shown.degraded.append(f"card: refused with {error.inner_code}, sent as text")
        text = {"text": shown.text_of(index)}
        message_id = await self._post_message(shown, "text", text, f"{uuid}:text", reply_to)
        return FeishuPart(kind=FeishuPartKind.TEXT, message_id=message_id)

    def _needs_entity(self, shown: FeishuPreparedMessage) -> bool:
        """Whether the card changes often or streams text, which needs a card entity."""
        if self.now() < self._cardkit_off_until:
            return False
        streaming = shown.parts[0]["config"]["streaming_mode"]
        return streaming or any(
            isinstance(block, ChecklistBlock | ProgressBlock)
            or (isinstance(block, TextBlock) and block.id)
            for block in shown.message.card.blocks
        )

    async def _send_entity(
        self, shown: FeishuPreparedMessage, card: CardJson, uuid: str, reply_to: str
    ) -> FeishuPart | None:
        """Send the card as an entity; None if CardKit is unavailable, and a plain card is sent
        instead.
        """
        card_id = self._unsent_entities.get(uuid, "")
        if not card_id:
            try:
                card_id = self._unsent_entities[uuid] = await self.cardkit.create(card)
            except FeishuError as error:
                if error.kind not in (FeishuErrorKind.SCOPE, FeishuErrorKind.OTHER):
                    raise
                self._disable_cardkit(error)
                return None
            self.on_cardkit(None)
        content = {"type": "card", "data": {"card_id": card_id}}
        message_id = await self._post_message(shown, "interactive", content, uuid, reply_to)
        self._unsent_entities.pop(uuid, None)
        if shown.message.repeat:
            # An earlier try may have arrived with its own entity, which is then shown.
            card_id = await self.cardkit.convert_message(message_id)
        return FeishuPart(kind=FeishuPartKind.ENTITY, message_id=message_id, card_id=card_id)

    def _disable_cardkit(self, error: FeishuError) -> None:
        log.warning("feishu: CardKit is unavailable, cards are patched instead: %s", error)
        self._cardkit_off_until = self.now() + _CARDKIT_RETRY_DELAY
        self.on_cardkit(error)

    async def _post_message(
        self, shown: FeishuPreparedMessage, kind: str, content: CardJson, uuid: str, reply_to: str
    ) -> str:
        chat = shown.message.chat
        return await self.messages.send(chat, kind, content, uuid=uuid, reply_to=reply_to)

    async def update_part(
        self, shown: FeishuPreparedMessage, index: int, part: FeishuPart
    ) -> FeishuPart:
        """Update a part in place. Raises a GONE error if it no longer exists."""
        match part.kind:
            case FeishuPartKind.ENTITY:
                return await self._update_entity(shown, shown.parts[index], part)
            case FeishuPartKind.CARD:
                return await self._update_card(shown, shown.parts[index], part)
            case FeishuPartKind.TEXT:
                text = shown.text_of(index)
                await self.messages.edit_text(part.message_id, text)
                return part

    async def _update_entity(
        self, shown: FeishuPreparedMessage, card: CardJson, part: FeishuPart
    ) -> FeishuPart:
        self.cardkit.adopt(part.card_id, part.sequence)
        try:
            await self.cardkit.update(part.card_id, card)
        except FeishuError as error:
            if error.kind is not FeishuErrorKind.CARD:
                raise
            await self.cardkit.update(part.card_id, self._plain_card(shown, error))
        return replace(part, sequence=self.cardkit.get_sequence(part.card_id))

    async def _update_card(
        self, shown: FeishuPreparedMessage, card: CardJson, part: FeishuPart
    ) -> FeishuPart:
        try:
            await self.messages.patch_card(part.message_id, card)
        except FeishuError as error:
            if error.kind is not FeishuErrorKind.CARD:
                raise
            if error.inner_code == _CARD_IS_ENTITY:
                card_id = await self.cardkit.convert_message(part.message_id)
                entity = replace(part, kind=FeishuPartKind.ENTITY, card_id=card_id)
                return await self._update_entity(shown, card, entity)
            await self.messages.patch_card(part.message_id, self._plain_card(shown, error))
        return part

    def _plain_card(self, shown: FeishuPreparedMessage, error: FeishuError) -> CardJson:
        log.warning("feishu: card refused, shown as plain text: %s", error)
        shown.degraded.append(f"card: refused with {error.inner_code}, shown as plain text")
        return minimal_card(shown.fallback, shown.words, shown.message.card.summary)

    async def send_next_file(
        self, shown: FeishuPreparedMessage, placement: FeishuPlacement
    ) -> None:
        """Send the next file, as a message of its own; each file is sent once."""
        message = shown.message
        for number, block in enumerate(_iter_blocks(message.card, FileBlock)):
            if not _is_left(block, placement):
                continue
            key = ""
            with _noting_refusal("file", shown.degraded):
                key = await self.files.upload_file(block.path, strip_unfit(block.name) or "file")
            if not key:
                placement.files[block.path] = ""
            else:
                uuid = f"{message.idempotency_key}:file:{number}"
                placement.files[block.path] = await self._post_message(
                    shown, "file", {"file_key": key}, uuid, ""
                )
                return


def has_files_left(card: Card, placement: FeishuPlacement) -> bool:
    return any(_is_left(block, placement) for block in _iter_blocks(card, FileBlock))


def _is_left(block: FileBlock, placement: FeishuPlacement) -> bool:
    """Whether the file has been neither sent nor shown as a document."""
    document = placement.documents.get(block.path)
    return block.path not in placement.files and not (document and document.url)


@contextmanager
def _noting_refusal(kind: str, notes: list[str]) -> Iterator[None]:
    """Record why a file cannot be uploaded; the message is shown without it."""
    try:
        yield
    except (FileUnsendable, FileTooLarge) as reason:
        notes.append(f"{kind}: {reason}")
    except FeishuError as error:
        if error.kind not in (FeishuErrorKind.BAD_FILE, FeishuErrorKind.LARGE_FILE):
            raise
        notes.append(f"{kind}: refused with {error.code}")


def _is_long(card: Card) -> bool:
    return (
        sum(len(block.markdown) for block in card.blocks if isinstance(block, TextBlock))
        > _MAX_TEXT
    )


# "The schema may not change": the error for patching a card that became an entity.
_CARD_IS_ENTITY = 200830


def _iter_blocks(card: Card, kind: type[Any]) -> Iterator[Any]:
    """All blocks of this kind, including folded ones."""
    for block in card.blocks:
        inner: tuple[Block, ...] = block.blocks if isinstance(block, CollapsibleBlock) else (block,)
        yield from (one for one in inner if isinstance(one, kind))


def _card_text(card: CardJson) -> str:
    """The text of a continuation card."""
    found = [one.get("content", "") for one in card["body"]["elements"] if "content" in one]
    return "\n".join(found)[:_MAX_TEXT] or "…"
