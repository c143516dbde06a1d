"""Records sent cards in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cards.actions import Action
from cards.card_json import dump_action
from cards.courier import CardRef
from cards.model import Block, ButtonsBlock, Card, CardButton, FormBlock, SelectBlock
from handlers.ports import PressRefusal
from storage.records.messages import CardActionRow, DeliveryUrgency, InboxId
from storage.records.people import ChatId, PersonId
from tests.builders import NOW


class FakeCardStore:
    """Courier, Cards and Buttons in one: what was sent, sealed, with its tokens.

    `shown` says which platform message shows which card; `streamed` is what was shown of
    answers in the making; `sent` has every send in order.
    """

    def __init__(self) -> None:
        self.cards: dict[str, Card] = {}
        self.chats: dict[str, ChatId] = {}
        self.rows: dict[str, CardActionRow] = {}
        self.shown: dict[tuple[ChatId, str], str] = {}
        self.streamed: list[tuple[str, str]] = []
        self.sent: list[tuple[ChatId, str, Card, DeliveryUrgency]] = []
        self.allowed: tuple[PersonId, ...] = ()
        self._claimed: dict[str, InboxId] = {}
        self._count = 0

    async def send(
        self, to: ChatId, card: Card, *, key: str, urgency: DeliveryUrgency, reply_to: str = ""
    ) -> CardRef:
        self.sent.append((to, key, card, urgency))
        for token, row in self.rows.items():
            if row.card_key == key:
                self.rows[token] = replace(row, retired=True)
        self.cards[key] = replace(
            card, blocks=tuple(self._with_tokens(b, key, to) for b in card.blocks)
        )
        self.chats[key] = to
        return CardRef(key=key, revision=len([each for each in self.sent if each[1] == key]))

    async def stream(self, ref: CardRef, markdown: str) -> None:
        self.streamed.append((ref.key, markdown))

    async def get_card(self, key: str) -> Card | None:
        return self.cards.get(key)

    async def list_card_keys(self, prefix: str) -> Sequence[tuple[str, ChatId]]:
        return [(key, chat) for key, chat in self.chats.items() if key.startswith(prefix)]

    async def list_cards_for_approval(self, approval_id: str) -> Sequence[tuple[str, ChatId]]:
        found = {
            row.card_key: row.chat_id
            for row in self.rows.values()
            if not row.retired
            and approval_id in {row.action.get("approval_id"), row.action.get("question_id")}
        }
        return list(found.items())

    async def find_shown(self, chat_id: ChatId, message_id: str) -> tuple[str, Card] | None:
        key = self.shown.get((chat_id, message_id), "")
        return (key, self.cards[key]) if key in self.cards else None

    async def get_action(self, token: str) -> CardActionRow | None:
        return self.rows.get(token)

    async def claim_press(
        self, token: str, *, person: PersonId, chat: ChatId, inbox_id: InboxId, now: datetime
    ) -> PressRefusal | None:
        row = self.rows.get(token)
        if row is None:
            return PressRefusal.UNKNOWN
        if row.chat_id != chat:
            return PressRefusal.FOREIGN
        if row.allowed and person not in row.allowed:
            return PressRefusal.NOT_ALLOWED
        if self._claimed.get(token) == inbox_id:
            return None
        if row.single_use and row.used_by:
            return PressRefusal.USED
        if row.retired:
            return PressRefusal.RETIRED
        if row.expires_at <= now:
            return PressRefusal.EXPIRED
        self._claimed[token] = inbox_id
        self.rows[token] = replace(row, used_by=person, used_at=now)
        return None

    def tokens(self, key: str) -> Iterator[tuple[str, Action, str]]:
        """(label, action, token) of everything that can be pressed on a card."""
        for block in self.cards[key].blocks:
            match block:
                case ButtonsBlock(items=items):
                    yield from ((each.label, each.action, each.token) for each in items)
                case SelectBlock():
                    yield block.placeholder, block.action, block.token
                case FormBlock():
                    yield block.submit, block.action, block.token
                case _:
                    pass

    def token(self, key: str, action: type) -> str:
        """The first control of that kind of action on the card."""
        return next(token for _, each, token in self.tokens(key) if isinstance(each, action))

    def add_button_card(self, action: Action, *, chat: str = "c1", key: str = "test:card") -> str:
        """A card with one button; returns the button's token."""
        row = self._row(action, key, ChatId(chat))
        button = CardButton(label="x", action=action, token=row.token)
        self.cards[key] = Card(blocks=(ButtonsBlock(items=(button,)),))
        self.chats[key] = ChatId(chat)
        return row.token

    def _with_tokens(self, block: Block, key: str, chat: ChatId) -> Block:
        match block:
            case ButtonsBlock(items=items):
                sealed = [
                    replace(each, token=self._row(each.action, key, chat).token) for each in items
                ]
                return ButtonsBlock(items=tuple(sealed))
            case SelectBlock() | FormBlock():
                return replace(block, token=self._row(block.action, key, chat).token)
            case _:
                return block

    def _row(self, action: Action, key: str, chat: ChatId) -> CardActionRow:
        self._count += 1
        row = CardActionRow(
            token=f"token{self._count:07}",
            card_key=key,
            chat_id=chat,
            action=dump_action(action),
            allowed=self.allowed,
            single_use=action.single_use,
            expires_at=NOW + timedelta(days=30),
            used_by=None,
            used_at=None,
            retired=False,
        )
        self.rows[row.token] = row
        return row
