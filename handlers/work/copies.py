"""The cards of one request for a decision: where it is asked, and the same truth on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from cards.courier import Courier
from cards.views.approvals import approval_card, settled_on_list
from cards.words import Words, words_for
from handlers.language import read_in
from handlers.ports import Cards, People
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.messages import Urgency
from storage.records.people import Chat, ChatId, ChatKind, Language, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Every call may be repeated: the same card under the same key changes nothing. `language`
    is the one all cards are written in, None for that of whoever reads in a chat."""

    people: People
    cards: Cards
    courier: Courier
    zone: ZoneInfo
    language: Language | None = None

    async def ask(
        self, approval: Approval, chat: ChatId, *, fallback: Language, reply_to: str = ""
    ) -> None:
        """Show it in this chat and, where nobody there alone may decide, to everybody who may,
        in private."""
        await self._send(approval, chat, key_of(approval, chat), fallback, reply_to)
        for room in await self._rooms(approval, await self.people.chat(chat)):
            await self._send(approval, room.id, key_of(approval, room.id), fallback)

    async def tell(self, approval: Approval, rooms: Sequence[Chat], *, fallback: Language) -> None:
        """Show it in these chats and no others."""
        for room in rooms:
            await self._send(approval, room.id, key_of(approval, room.id), fallback)

    async def show(self, approval: Approval, *, fallback: Language) -> None:
        """Bring every copy up to date, and the lists that have buttons of it."""
        for key, chat in await self.cards.copies(prefix_of(approval)):
            await self._send(approval, chat, key, fallback)
        if approval.state is ApprovalState.WAITING:
            return
        for key, chat in await self.cards.asking(approval.id):
            card = None if key.startswith(prefix_of(approval)) else await self.cards.card(key)
            if card is not None:
                listed = settled_on_list(card, approval, await self.words(chat, fallback))
                await self.courier.send(chat, listed, key=key, urgency=Urgency.NOTICE)

    async def stands_in(self, approval: Approval, chat: ChatId) -> bool:
        """Whether this chat has a copy."""
        return await self.cards.card(key_of(approval, chat)) is not None

    async def as_told(self, approval: Approval, chat: ChatId, words: Words) -> Approval:
        """What may be told of it in this chat. One request extends a cap for all whom it stops:
        whose words were first is for their own chat and the owners."""
        if approval.kind is not ApprovalKind.BUDGET or await self._knows(chat, approval):
            return approval
        return replace(approval, title=words("approval.kinds.budget"), task_id=None)

    async def words(self, chat: ChatId, fallback: Language) -> Words:
        spoken = self.language or await read_in(self.people, await self.people.chat(chat))
        return words_for(spoken or fallback)

    async def decider(self, approval: Approval) -> str:
        if approval.decided_by is None:
            return ""
        return (await self.people.get(approval.decided_by)).name

    async def _send(
        self, approval: Approval, chat: ChatId, key: str, fallback: Language, reply_to: str = ""
    ) -> None:
        words = await self.words(chat, fallback)
        card = approval_card(
            await self.as_told(approval, chat, words),
            words,
            zone=self.zone,
            decider=await self.decider(approval),
            deciders=[(await self.people.get(each)).name for each in approval.approvers],
        )
        await self.courier.send(chat, card, key=key, urgency=Urgency.APPROVAL, reply_to=reply_to)

    async def _rooms(self, approval: Approval, asked: Chat) -> Sequence[Chat]:
        named = approval.payload.get("assignees", [])
        here = asked.kind is ChatKind.PRIVATE and await self._decides(asked, approval)
        if here and {*named} <= {asked.person_id}:
            return ()
        rooms = [chat for role in Role for chat in await self.people.private_chats(role)]
        return [
            chat
            for chat in rooms
            if (chat.channel, chat.external_id) != (asked.channel, asked.external_id)
            and await self._decides(chat, approval)
            and (not here or chat.person_id in named)
        ]

    async def _knows(self, chat: ChatId, approval: Approval) -> bool:
        here, asked = [await self.people.chat(each) for each in (chat, approval.chat_id)]
        if (here.channel, here.external_id) == (asked.channel, asked.external_id):
            return True
        if here.kind is not ChatKind.PRIVATE or here.person_id is None:
            return False
        return (await self.people.get(here.person_id)).role is Role.OWNER

    async def _decides(self, chat: Chat, approval: Approval) -> bool:
        if chat.person_id is None:
            return False
        return approval.may_be_decided_by(await self.people.get(chat.person_id))


def prefix_of(approval: Approval) -> str:
    return f"approval:{approval.id}:"


def key_of(approval: Approval, chat: ChatId) -> str:
    return f"{prefix_of(approval)}{chat}"
