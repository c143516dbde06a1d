"""One letter onto the platform: sent, changed, or sent anew where its place is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from bot.transports.base import Letter
from bot.transports.feishu.cardkit import CardKit
from bot.transports.feishu.errors import FeishuError, Kind
from bot.transports.feishu.marks import mark_for
from bot.transports.feishu.media import Media, Unsendable
from bot.transports.feishu.placement import Part, PartKind, Placement
from bot.transports.feishu.posting import Posting
from cards.model import Block, Card, Checklist, Collapsible, File, Image, Progress, Text
from cards.render import text as plain_text
from cards.render.feishu.card import FeishuCard, minimal, render
from cards.render.feishu.size import scrub
from cards.words import Words, words_for

log = logging.getLogger(__name__)

_TEXT = 20_000
_UNSENT = 200
_CARDKIT_REST = 3600.0
CardJson: TypeAlias = Mapping[str, Any]


class Shown:
    """A letter made ready: its cards, and what of it the platform could not take."""

    def __init__(self, letter: Letter, made: FeishuCard, words: Words) -> None:
        self.letter = letter
        self.words = words
        self.parts = made.parts
        self.answer = made.answer
        self.degraded = list(made.degraded)

    @property
    def fallback(self) -> str:
        """The whole letter in plain text, for where its card is refused."""
        card = self.letter.card
        text = card.fallback or plain_text.render(card).text or card.summary
        return scrub(text)[:_TEXT] or "…"


class Delivery:
    def __init__(
        self,
        *,
        posting: Posting,
        cardkit: CardKit,
        media: Media,
        now: Callable[[], float],
        on_cardkit: Callable[[FeishuError | None], None],
    ) -> None:
        self._posting = posting
        self._cardkit = cardkit
        self._media = media
        self._now = now
        self._on_cardkit = on_cardkit
        self._unsent: dict[str, str] = {}
        self._cardkit_off_until = 0.0

    async def prepare(
        self, letter: Letter, placement: Placement, *, streaming: bool = False
    ) -> Shown:
        """Upload the pictures and render. Pictures that cannot be sent are named instead."""
        notes: list[str] = []
        for image in _blocks(letter.card, Image):
            if image.path not in placement.images:
                try:
                    placement.images[image.path] = await self._media.upload_image(image.path)
                except Unsendable as reason:
                    notes.append(f"image: {reason}")
                except FeishuError as error:
                    if error.kind not in (Kind.BAD_FILE, Kind.LARGE_FILE):
                        raise
                    notes.append(f"image: refused with {error.code}")
        words = words_for(letter.language)
        draw = partial(
            render,
            letter.card,
            words,
            images=dict(placement.images),
            mark=mark_for(letter.chat),
            streaming=streaming,
        )
        # A long text would be felt by everybody else on the loop.
        made = await asyncio.to_thread(draw) if _is_long(letter.card) else draw()
        shown = Shown(letter, made, words)
        shown.degraded.extend(notes)
        return shown

    # --- sending --------------------------------------------------------------------------

    async def send(self, shown: Shown, index: int, *, uuid: str, reply_to: str) -> Part:
        """One part as a new message: an entity where it will change, else a card, else text."""
        card = shown.parts[index]
        try:
            if index == 0 and self._wants_entity(shown):
                part = await self._send_entity(shown, card, uuid, reply_to)
                if part is not None:
                    return part
            message_id = await self._post(shown, "interactive", card, uuid, reply_to)
            return Part(kind=PartKind.CARD, message_id=message_id)
        except FeishuError as error:
            if error.kind is not Kind.CARD:
                raise
            log.warning("feishu: card refused, sent as text: %s", error)
            shown.degraded.append(f"card: refused with {error.inner}, sent as text")
        text = {"text": shown.fallback if index == 0 else _words_of(card)}
        message_id = await self._post(shown, "text", text, f"{uuid}:text", reply_to)
        return Part(kind=PartKind.TEXT, message_id=message_id)

    def _wants_entity(self, shown: Shown) -> bool:
        """Cards that will change often, or whose text streams."""
        if self._now() < self._cardkit_off_until:
            return False
        streaming = shown.parts[0]["config"]["streaming_mode"]
        return streaming or any(
            isinstance(block, Checklist | Progress) or (isinstance(block, Text) and block.id)
            for block in shown.letter.card.blocks
        )

    async def _send_entity(
        self, shown: Shown, card: CardJson, uuid: str, reply_to: str
    ) -> Part | None:
        """None where CardKit is not to be had: a plain card does it then."""
        card_id = self._unsent.get(uuid, "")
        if not card_id:
            try:
                card_id = self._unsent[uuid] = await self._cardkit.create(card)
                if len(self._unsent) > _UNSENT:
                    self._unsent.pop(next(iter(self._unsent)))
            except FeishuError as error:
                if error.kind not in (Kind.SCOPE, Kind.OTHER):
                    raise
                self._rest(error)
                return None
            self._on_cardkit(None)
        content = {"type": "card", "data": {"card_id": card_id}}
        message_id = await self._post(shown, "interactive", content, uuid, reply_to)
        self._unsent.pop(uuid, None)
        if shown.letter.repeat:
            # An earlier try may have arrived with an entity of its own: that one is on show.
            card_id = await self._cardkit.convert(message_id)
        return Part(kind=PartKind.ENTITY, message_id=message_id, card_id=card_id)

    def _rest(self, error: FeishuError) -> None:
        log.warning("feishu: no CardKit, cards are patched instead: %s", error)
        self._cardkit_off_until = self._now() + _CARDKIT_REST
        self._on_cardkit(error)

    async def _post(
        self, shown: Shown, kind: str, content: CardJson, uuid: str, reply_to: str
    ) -> str:
        chat = shown.letter.chat
        return await self._posting.send(chat, kind, content, uuid=uuid, reply_to=reply_to)

    # --- changing -------------------------------------------------------------------------

    async def change(self, shown: Shown, index: int, part: Part) -> Part:
        """Show one part where it stands already. Raises a GONE error where it no longer does."""
        match part.kind:
            case PartKind.ENTITY:
                return await self._change_entity(shown, shown.parts[index], part)
            case PartKind.CARD:
                return await self._change_card(shown, shown.parts[index], part)
            case PartKind.TEXT:
                text = shown.fallback if index == 0 else _words_of(shown.parts[index])
                await self._posting.edit_text(part.message_id, text)
                return part

    async def _change_entity(self, shown: Shown, card: CardJson, part: Part) -> Part:
        self._cardkit.adopt(part.card_id, part.sequence)
        try:
            await self._cardkit.update(part.card_id, card)
        except FeishuError as error:
            if error.kind is not Kind.CARD:
                raise
            await self._cardkit.update(part.card_id, self._plainest(shown, error))
        return replace(part, sequence=self._cardkit.sequence(part.card_id))

    async def _change_card(self, shown: Shown, card: CardJson, part: Part) -> Part:
        try:
            await self._posting.patch_card(part.message_id, card)
        except FeishuError as error:
            if error.kind is not Kind.CARD:
                raise
            if error.inner == _ENTITY_NOW:
                card_id = await self._cardkit.convert(part.message_id)
                entity = replace(part, kind=PartKind.ENTITY, card_id=card_id)
                return await self._change_entity(shown, card, entity)
            await self._posting.patch_card(part.message_id, self._plainest(shown, error))
        return part

    def _plainest(self, shown: Shown, error: FeishuError) -> CardJson:
        log.warning("feishu: card refused, shown as plain text: %s", error)
        shown.degraded.append(f"card: refused with {error.inner}, shown as plain text")
        return minimal(shown.fallback, shown.words, shown.letter.card.summary)

    # --- files ----------------------------------------------------------------------------

    async def send_files(self, shown: Shown, placement: Placement) -> None:
        """Each file as a message of its own, behind the card, once."""
        letter = shown.letter
        for number, block in enumerate(_blocks(letter.card, File)):
            if block.path in placement.files:
                continue
            try:
                key = await self._media.upload_file(block.path, scrub(block.name) or "file")
            except Unsendable as reason:
                shown.degraded.append(f"file: {reason}")
                continue
            except FeishuError as error:
                if error.kind not in (Kind.BAD_FILE, Kind.LARGE_FILE):
                    raise
                shown.degraded.append(f"file: refused with {error.code}")
                continue
            uuid = f"{letter.uuid}:file:{number}"
            placement.files[block.path] = await self._post(
                shown, "file", {"file_key": key}, uuid, ""
            )


def _is_long(card: Card) -> bool:
    return sum(len(block.markdown) for block in card.blocks if isinstance(block, Text)) > _TEXT


# "The schema may not change": what a patch is told about a card that became an entity.
_ENTITY_NOW = 200830


def _blocks(card: Card, kind: type[Any]) -> Iterator[Any]:
    """Blocks of this kind, also those folded away."""
    for block in card.blocks:
        inner: tuple[Block, ...] = block.blocks if isinstance(block, Collapsible) else (block,)
        yield from (one for one in inner if isinstance(one, kind))


def _words_of(card: CardJson) -> str:
    """What a continuation card says, without its looks."""
    found = [one.get("content", "") for one in card["body"]["elements"] if "content" in one]
    return "\n".join(found)[:_TEXT] or "…"
