"""Stores cards in the outbox with their button tokens, finds sent ones, and streams unfinished
answers to chats."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from bot.transports.ports import Clock, DeliveryError, LanguageResolver, OutboundMessage, Transport
from cards.actions import Action
from cards.card_json import CardDecodeError, dump_action, dump_card, load_card
from cards.courier import CardRef
from cards.model import Block, ButtonsBlock, Card, FormBlock, SelectBlock, TextBlock
from cards.render.text import render
from handlers.ports import PressRefusal
from storage.db import Database, Transaction
from storage.messages.card_actions import ButtonRequest, CardActionRepo
from storage.messages.chats import ChatRepo
from storage.messages.outbox import OutboxRepo, OutgoingCard
from storage.records.messages import CardActionRow, DeliveryUrgency, InboxId, OutboxId, OutboxRow
from storage.records.people import Channel, Chat, ChatId, ChatKind, Language, PersonId

log = logging.getLogger(__name__)


def supports_drafts(chat: Chat) -> bool:
    """Whether the platform shows drafts, without a message being sent."""
    return chat.channel is Channel.TELEGRAM and chat.kind is ChatKind.PRIVATE


@dataclass(kw_only=True, eq=False)
class AnswerStreams:
    """Streams unfinished answers without storing them; only the latest text counts. `is_paused`
    says where streaming must pause. `may_stream` says whether an answer may be edited again after
    that many edits; `may_send` counts an edit against the chat's limits, or refuses it.
    """

    outbox: OutboxRepo
    transports: Mapping[Channel, Transport]
    is_paused: Callable[[Chat], bool]
    may_stream: Callable[[Chat, int], bool]
    may_send: Callable[[Chat, int], bool]
    _edits: Counter[OutboxId] = field(default_factory=Counter, init=False)
    language_of: LanguageResolver
    _newest: dict[OutboxId, str] = field(default_factory=dict, init=False)
    _tasks: dict[OutboxId, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _resume_requested: set[OutboxId] = field(default_factory=set, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close)

    def show(self, outbox_id: OutboxId, markdown: str) -> None:
        """Show the latest text once the previous update is done."""
        self._newest[outbox_id] = markdown
        self.resume(outbox_id)

    def resume(self, outbox_id: OutboxId) -> None:
        """Continue a stream whose message has been placed."""
        if outbox_id in self._tasks:
            self._resume_requested.add(outbox_id)
        elif outbox_id in self._newest:
            task = asyncio.create_task(self._run(outbox_id), name=f"stream {outbox_id}")
            self._tasks[outbox_id] = task

    def end(self, outbox_id: OutboxId) -> None:
        """End the stream because the final answer is stored."""
        self._edits.pop(outbox_id, None)
        self._newest.pop(outbox_id, None)

    async def _run(self, outbox_id: OutboxId) -> None:
        try:
            while outbox_id in self._newest and await self._push(outbox_id):
                self._resume_requested.discard(outbox_id)
        except DeliveryError as error:
            log.debug("A stream ends early (outbox %s): %s", outbox_id, error)
            self._newest.pop(outbox_id, None)
        # Error boundary: streaming is optional.
        except Exception:
            log.exception("A streaming answer could not be shown (outbox %s)", outbox_id)
            self._newest.pop(outbox_id, None)
        finally:
            del self._tasks[outbox_id]
            if outbox_id in self._resume_requested:
                self._resume_requested.discard(outbox_id)
                self.resume(outbox_id)

    async def _push(self, outbox_id: OutboxId) -> bool:
        """False if the message is not placed yet."""
        found = await self.outbox.get(outbox_id)
        if found is None:
            self._newest.pop(outbox_id, None)
            return False
        row, chat = found
        if row.placement is None and not supports_drafts(chat):
            return False
        markdown = self._newest.pop(outbox_id, None)
        if markdown is None or self.is_paused(chat):
            return True
        if not self.may_stream(chat, self._edits[outbox_id]):
            return True
        # Guess the language from the answer itself, as there is no card yet.
        shown = Card(fallback=markdown)
        message = _draft_message(row, chat, await self.language_of(chat, shown))
        message = replace(message, may_send=partial(self._try_edit, outbox_id, chat))
        if (transport := self.transports.get(chat.channel)) is not None:
            await transport.stream(message, markdown)
        return True

    def _try_edit(self, outbox_id: OutboxId, chat: Chat) -> bool:
        allowed = self.may_send(chat, self._edits[outbox_id])
        self._edits[outbox_id] += allowed
        return allowed

    async def _close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _draft_message(row: OutboxRow, chat: Chat, language: Language) -> OutboundMessage:
    return OutboundMessage(
        outbox_id=row.id,
        chat=chat,
        card=_load_draft_card(row),
        revision=row.revision,
        urgency=DeliveryUrgency.PROGRESS,
        idempotency_key="",
        reply_to=row.reply_to,
        placed=row.placement,
        language=language,
    )


def _load_draft_card(row: OutboxRow) -> Card:
    try:
        return load_card(row.card) if row.revision else Card()
    except CardDecodeError:
        return Card()


# Longer texts are rendered in a thread, so that they do not block the event loop.
_THREADED_RENDER_LENGTH = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExpectedAnswer:
    to: ChatId
    reply_to: str


@dataclass(kw_only=True, eq=False)
class OutboxCourier:
    """Implements `cards.courier.Courier`. `wake` is called when a message is due. `mask` removes
    secrets from every text before it is stored or streamed, whoever wrote it.
    """

    db: Database
    chats: ChatRepo
    outbox: OutboxRepo
    actions: CardActionRepo
    streams: AnswerStreams
    wake: Callable[[], None]
    clock: Clock
    mask: Callable[[str], str]
    _expected: dict[str, _ExpectedAnswer] = field(default_factory=dict, init=False)

    async def send(
        self,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: DeliveryUrgency,
        reply_to: str = "",
    ) -> CardRef:
        whole = await self.prepare(card)
        async with self.db.write() as tx:
            ref = await self.post(tx, to, whole, key=key, urgency=urgency, reply_to=reply_to)
        self.wake()
        return ref

    async def prepare(self, card: Card) -> Card:
        """Add the plain-text fallback."""
        if card.fallback:
            return card
        size = sum(len(block.markdown) for block in card.blocks if isinstance(block, TextBlock))
        return (
            await asyncio.to_thread(_with_fallback, card)
            if size > _THREADED_RENDER_LENGTH
            else _with_fallback(card)
        )

    async def post(
        self,
        tx: Transaction,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: DeliveryUrgency,
        reply_to: str = "",
    ) -> CardRef:
        """`send` within a larger transaction, for a prepared card. Call `wake` after the commit."""
        now = self.clock.now()
        shown = _mask_texts(dump_card(card), self.mask)
        new = OutgoingCard(key=key, chat_id=to, card=shown, urgency=urgency, reply_to=reply_to)
        wanted = _pressable_actions(card)
        # Most cards are new and have no buttons, so one statement is enough.
        posted = None if wanted else await self.outbox.add(tx, new, now=now)
        if posted is None:
            tokens = await self.actions.issue_tokens(tx, wanted, card_key=key, chat_id=to, now=now)
            whole = dump_card(_seal_card(card, tokens))
            sealed = replace(new, card=_mask_texts(whole, self.mask))
            posted = await self.outbox.put(tx, sealed, now=now)
        self.streams.end(posted.id)
        self._expected.pop(key, None)
        return CardRef(key=key, revision=posted.revision)

    async def exists(self, tx: Transaction, key: str) -> bool:
        return await self.outbox.find_by_key(key, tx) is not None

    async def find_message(self, tx: Transaction, key: str) -> str:
        """The platform's ID of the first message of a card; empty if it is not known yet."""
        row = await self.outbox.find_by_key(key, tx)
        placed = None if row is None else row.placement
        # Without an ID, what belongs to the message was stored before the message was sent.
        return next(iter(placed.message_ids), "") if placed is not None else ""

    def expect_answer(self, key: str, to: ChatId, *, reply_to: str = "") -> None:
        """Announce an answer under `key`, so that it can be streamed before it is sent."""
        self._expected[key] = _ExpectedAnswer(to=to, reply_to=reply_to)

    def cancel_expected(self, key: str) -> None:
        self._expected.pop(key, None)

    async def stream(self, ref: CardRef, markdown: str) -> None:
        markdown = self.mask(markdown)
        row = await self.outbox.find_by_key(ref.key)
        expected = self._expected.get(ref.key)
        if row is None and expected is not None:
            await self._start_stream(ref.key, expected, markdown)
        elif row is not None and (expected is not None or ref.revision >= row.revision):
            self.streams.show(row.id, markdown)

    async def _start_stream(self, key: str, expected: _ExpectedAnswer, markdown: str) -> None:
        """Reserve a place for the answer: a draft, or a message that the answer will replace even
        after a crash."""
        chat = await self.chats.get(expected.to)
        if not self.streams.may_stream(chat, 0):
            return
        if supports_drafts(chat):
            new = OutgoingCard(
                key=key,
                chat_id=expected.to,
                card={},
                urgency=DeliveryUrgency.ANSWER,
                reply_to=expected.reply_to,
            )
            async with self.db.write() as tx:
                row = await self.outbox.reserve(tx, new, now=self.clock.now())
            self.streams.show(row.id, markdown)
            return
        card = await self.prepare(Card(blocks=(TextBlock(markdown, id="answer"),)))
        async with self.db.write() as tx:
            await self.post(
                tx,
                expected.to,
                card,
                key=key,
                urgency=DeliveryUrgency.PROGRESS,
                reply_to=expected.reply_to,
            )
        self._expected[key] = expected
        self.wake()


_NOT_SHOWN = frozenset({"action", "field", "kind", "path", "state", "style", "token", "tone"})
"""Fields of stored cards that hold no texts for people."""


def _mask_texts(data: Any, mask: Callable[[str], str]) -> Any:
    match data:
        case str():
            return mask(data)
        case Mapping():
            return {
                name: value if name in _NOT_SHOWN else _mask_texts(value, mask)
                for name, value in data.items()
            }
        case list() | tuple():
            return [_mask_texts(each, mask) for each in data]
        case _:
            return data


def _with_fallback(card: Card) -> Card:
    return replace(card, fallback=render(card).text)


def _pressable_actions(card: Card) -> list[ButtonRequest]:
    """The actions that need tokens, in card order."""
    return [
        ButtonRequest(action=dump_action(action), single_use=action.single_use)
        for action in _iter_actions(card)
    ]


def _seal_card(card: Card, tokens: Sequence[str]) -> Card:
    """Insert the tokens, in the order of `_pressable_actions`."""
    rest = iter(tokens)
    return replace(card, blocks=tuple(_seal_block(block, rest) for block in card.blocks))


def _iter_actions(card: Card) -> Iterator[Action]:
    for block in card.blocks:
        if isinstance(block, ButtonsBlock):
            yield from (button.action for button in block.items)
        elif isinstance(block, SelectBlock | FormBlock):
            yield block.action


def _seal_block(block: Block, tokens: Iterator[str]) -> Block:
    if isinstance(block, ButtonsBlock):
        items = tuple(replace(button, token=next(tokens)) for button in block.items)
        return replace(block, items=items)
    if isinstance(block, SelectBlock | FormBlock):
        return replace(block, token=next(tokens))
    return block


_MAX_LOOKUPS, _LOOKUP_INTERVAL = 20, 0.1
"""Number of lookups for a card that is still being sent, and seconds between them."""


class ButtonClaimService:
    """Implements `handlers.ports.ButtonPort`."""

    def __init__(self, actions: CardActionRepo) -> None:
        self._actions = actions

    async def get_action(self, token: str) -> CardActionRow | None:
        return await self._actions.get_action(token)

    async def claim_press(
        self, token: str, *, person: PersonId, chat: ChatId, inbox_id: InboxId, now: datetime
    ) -> PressRefusal | None:
        claim = await self._actions.claim_press(
            token, person=person, chat=chat, inbox_id=inbox_id, now=now
        )
        return None if claim.is_effective else PressRefusal(claim.value)


@dataclass(eq=False)
class SentCardService:
    """Implements `handlers.ports.CardPort`."""

    outbox: OutboxRepo
    chats: ChatRepo
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def find_shown(self, chat_id: ChatId, message_id: str) -> tuple[str, Card] | None:
        row = await self._find_shown(await self.chats.get(chat_id), message_id)
        card = None if row is None else _load_or_none(row.card)
        return None if row is None or card is None else (row.key, card)

    async def _find_shown(self, chat: Chat, message_id: str) -> OutboxRow | None:
        """Find a card that is shown. Waits, since a reply may arrive before the placement of its
        card is stored.
        """
        for _ in range(_MAX_LOOKUPS):
            row = await self.outbox.find_by_platform_message(
                chat.channel, chat.external_id, message_id
            )
            if row is not None or not await self.outbox.is_delivering(chat.id):
                return row
            await self.sleep(_LOOKUP_INTERVAL)
        return None

    async def get_card(self, key: str) -> Card | None:
        row = await self.outbox.find_by_key(key)
        return None if row is None else _load_or_none(row.card)

    async def list_card_keys(self, prefix: str) -> Sequence[tuple[str, ChatId]]:
        return await self.outbox.list_by_prefix(prefix)

    async def list_cards_for_approval(self, approval_id: str) -> Sequence[tuple[str, ChatId]]:
        return await self.outbox.list_approval_cards(approval_id)


def _load_or_none(card: Mapping[str, object]) -> Card | None:
    try:
        return load_card(card)
    except CardDecodeError:
        # Another version wrote the card, so its buttons are unusable.
        return None
