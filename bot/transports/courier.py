"""The Courier: a card is sealed and stored in one transaction, and delivered later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bot.transports.clock import Clock
from bot.transports.streams import Streams, drafts
from cards.actions import Action
from cards.card_json import dump_action, dump_card
from cards.courier import CardRef
from cards.model import Block, Buttons, Card, Form, Select, Text
from cards.render.text import render
from storage.db import Database, Transaction
from storage.mail.actions import Actions, Wanted
from storage.mail.chats import Chats
from storage.mail.outbox import Outbox, Outgoing
from storage.records.messages import Urgency
from storage.records.people import ChatId

# Beyond this many characters a card's text is rendered in a thread: it could be felt otherwise.
_LONG = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    to: ChatId
    reply_to: str


class OutboxCourier:
    """Implements cards.courier.Courier. `wake` is called when something new is due."""

    def __init__(
        self,
        *,
        db: Database,
        chats: Chats,
        outbox: Outbox,
        actions: Actions,
        streams: Streams,
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._db = db
        self._chats = chats
        self._outbox = outbox
        self._actions = actions
        self._streams = streams
        self._wake = wake
        self._clock = clock
        self._expected: dict[str, _Expected] = {}

    async def send(
        self,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: Urgency,
        reply_to: str = "",
    ) -> CardRef:
        whole = await self.prepared(card)
        async with self._db.write() as tx:
            ref = await self.post(tx, to, whole, key=key, urgency=urgency, reply_to=reply_to)
        self._wake()
        return ref

    async def prepared(self, card: Card) -> Card:
        """The card with its plain-text fallback."""
        if card.fallback:
            return card
        size = sum(len(block.markdown) for block in card.blocks if isinstance(block, Text))
        return await asyncio.to_thread(_whole, card) if size > _LONG else _whole(card)

    async def post(
        self,
        tx: Transaction,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: Urgency,
        reply_to: str = "",
    ) -> CardRef:
        """`send` within a larger transaction, for a prepared card. Wake the delivery after it."""
        now = self._clock.now()
        new = Outgoing(
            key=key, chat_id=to, card=dump_card(card), urgency=urgency, reply_to=reply_to
        )
        wanted = _wanted(card)
        # Most cards are new and have no buttons: for them one statement is enough.
        posted = None if wanted else await self._outbox.add(tx, new, now=now)
        if posted is None:
            tokens = await self._actions.seal(tx, wanted, card_key=key, chat_id=to, now=now)
            sealed = replace(new, card=dump_card(_sealed_card(card, tokens)))
            posted = await self._outbox.put(tx, sealed, now=now)
        self._streams.end(posted.id)
        self._expected.pop(key, None)
        return CardRef(key=key, revision=posted.revision)

    async def is_there(self, tx: Transaction, key: str) -> bool:
        """Whether somebody has put a card under this key already."""
        return await self._outbox.by_key(key, tx) is not None

    def wake(self) -> None:
        self._wake()

    def expect(self, key: str, to: ChatId, *, reply_to: str = "") -> None:
        """An answer under `key` is being made: it may be streamed before it is sent."""
        self._expected[key] = _Expected(to=to, reply_to=reply_to)

    def expect_no_more(self, key: str) -> None:
        self._expected.pop(key, None)

    async def stream(self, ref: CardRef, markdown: str) -> None:
        row = await self._outbox.by_key(ref.key)
        expected = self._expected.get(ref.key)
        if row is None and expected is not None:
            await self._begin(ref.key, expected, markdown)
        elif row is not None and (expected is not None or ref.revision >= row.revision):
            self._streams.show(row.id, markdown)

    async def _begin(self, key: str, expected: _Expected, markdown: str) -> None:
        """Give the answer a place: a draft where the platform has such, else a message that the
        answer will take the place of, also after a crash."""
        chat = await self._chats.get(expected.to)
        if drafts(chat):
            new = Outgoing(
                key=key,
                chat_id=expected.to,
                card={},
                urgency=Urgency.ANSWER,
                reply_to=expected.reply_to,
            )
            async with self._db.write() as tx:
                row = await self._outbox.reserve(tx, new, now=self._clock.now())
            self._streams.show(row.id, markdown)
            return
        card = await self.prepared(Card(blocks=(Text(markdown=markdown, id="answer"),)))
        async with self._db.write() as tx:
            await self.post(
                tx,
                expected.to,
                card,
                key=key,
                urgency=Urgency.PROGRESS,
                reply_to=expected.reply_to,
            )
        self._expected[key] = expected
        self._wake()


def _whole(card: Card) -> Card:
    return replace(card, fallback=render(card).text)


def _wanted(card: Card) -> list[Wanted]:
    """What has to be pressable on the card, in order."""
    return [
        Wanted(action=dump_action(action), single_use=action.single_use)
        for action in _actions(card)
    ]


def _sealed_card(card: Card, tokens: Sequence[str]) -> Card:
    """The card with its tokens, in the order of `_wanted`."""
    rest = iter(tokens)
    return replace(card, blocks=tuple(_sealed(block, rest) for block in card.blocks))


def _actions(card: Card) -> Iterator[Action]:
    for block in card.blocks:
        if isinstance(block, Buttons):
            yield from (button.action for button in block.items)
        elif isinstance(block, Select | Form):
            yield block.action


def _sealed(block: Block, tokens: Iterator[str]) -> Block:
    if isinstance(block, Buttons):
        items = tuple(replace(button, token=next(tokens)) for button in block.items)
        return replace(block, items=items)
    if isinstance(block, Select | Form):
        return replace(block, token=next(tokens))
    return block
