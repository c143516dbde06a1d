"""Shows requests for approval to everybody who may decide them, and keeps every copy of a card up
to date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from cards.catalog import TextCatalog, catalog_for
from cards.courier import Courier
from cards.views.approvals import (
    approval_card,
    mark_settled_in_list,
)
from handlers.language import language_of_chat
from handlers.ports import CardPort, PeoplePort
from storage.records.approvals import (
    Approval,
    ApprovalKind,
    ApprovalState,
)
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, ChatId, ChatKind, Language, PersonRole


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalCards:
    """Every call is idempotent: the same card under the same key changes nothing. `language` is the
    language of all cards, None for the reader's."""

    people: PeoplePort
    cards: CardPort
    courier: Courier
    zone: ZoneInfo
    language: Language | None = None

    async def request_decision(
        self, approval: Approval, chat: ChatId, *, fallback: Language, reply_to: str = ""
    ) -> None:
        """Show the request in this chat and, unless someone there can decide it alone, to every
        approver in private."""
        await self._send(approval, chat, card_key(approval, chat), fallback, reply_to)
        for room in await self._decider_chats(approval, await self.people.get_chat(chat)):
            await self._send(approval, room.id, card_key(approval, room.id), fallback)

    async def post_to_chats(
        self, approval: Approval, chats: Sequence[Chat], *, fallback: Language
    ) -> None:
        """Show the request in these chats only."""
        for room in chats:
            await self._send(approval, room.id, card_key(approval, room.id), fallback)

    async def update_all(self, approval: Approval, *, fallback: Language) -> None:
        """Update every copy, and lists with buttons for the request."""
        for key, chat in await self.cards.list_card_keys(card_key_prefix(approval)):
            await self._send(approval, chat, key, fallback)
        if approval.state is ApprovalState.WAITING:
            return
        for key, chat in await self.cards.list_cards_for_approval(approval.id):
            card = (
                None
                if key.startswith(card_key_prefix(approval))
                else await self.cards.get_card(key)
            )
            if card is not None:
                card_copy = mark_settled_in_list(
                    card, approval, await self.catalog_for_chat(chat, fallback)
                )
                await self.courier.send(chat, card_copy, key=key, urgency=DeliveryUrgency.NOTICE)

    async def is_shown_in(self, approval: Approval, chat: ChatId) -> bool:
        """Whether this chat has a copy."""
        return await self.cards.get_card(card_key(approval, chat)) is not None

    async def redact_for_chat(
        self, approval: Approval, chat: ChatId, words: TextCatalog
    ) -> Approval:
        """The request as this chat may see it: one cap request may serve several chats, and the
        first one's words are for that chat and the owners only."""
        if approval.kind is not ApprovalKind.BUDGET or await self._may_see_title(chat, approval):
            return approval
        return replace(approval, title=words("approval.kinds.budget"), task_id=None)

    async def catalog_for_chat(self, chat: ChatId, fallback: Language) -> TextCatalog:
        language = self.language or await language_of_chat(
            self.people, await self.people.get_chat(chat)
        )
        return catalog_for(language or fallback)

    async def decider_name(self, approval: Approval) -> str:
        if approval.decided_by is None:
            return ""
        return (await self.people.get(approval.decided_by)).name

    async def _send(
        self, approval: Approval, chat: ChatId, key: str, fallback: Language, reply_to: str = ""
    ) -> None:
        words = await self.catalog_for_chat(chat, fallback)
        card = approval_card(
            await self.redact_for_chat(approval, chat, words),
            words,
            zone=self.zone,
            decider=await self.decider_name(approval),
            deciders=[(await self.people.get(each)).name for each in approval.approvers],
        )
        await self.courier.send(
            chat, card, key=key, urgency=DeliveryUrgency.APPROVAL, reply_to=reply_to
        )

    async def _decider_chats(self, approval: Approval, origin: Chat) -> Sequence[Chat]:
        assignees = approval.payload.get("assignees", [])
        origin_decides = origin.kind is ChatKind.PRIVATE and await self._may_decide(
            origin, approval
        )
        if origin_decides and {*assignees} <= {origin.person_id}:
            return ()
        rooms = [chat for role in PersonRole for chat in await self.people.private_chats(role)]
        return [
            chat
            for chat in rooms
            if (chat.channel, chat.external_id) != (origin.channel, origin.external_id)
            and await self._may_decide(chat, approval)
            and (not origin_decides or chat.person_id in assignees)
        ]

    async def _may_see_title(self, chat: ChatId, approval: Approval) -> bool:
        reader_chat, origin = [
            await self.people.get_chat(each) for each in (chat, approval.chat_id)
        ]
        if (reader_chat.channel, reader_chat.external_id) == (origin.channel, origin.external_id):
            return True
        if reader_chat.kind is not ChatKind.PRIVATE or reader_chat.person_id is None:
            return False
        return (await self.people.get(reader_chat.person_id)).role is PersonRole.OWNER

    async def _may_decide(self, chat: Chat, approval: Approval) -> bool:
        if chat.person_id is None:
            return False
        return approval.can_be_decided_by(await self.people.get(chat.person_id))


def card_key_prefix(approval: Approval) -> str:
    return f"approval:{approval.id}:"


def card_key(approval: Approval, chat: ChatId) -> str:
    return f"{card_key_prefix(approval)}{chat}"
