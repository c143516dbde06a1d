"""Forwards task results and approval requests of unreachable chats to the owners."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cards.card_json import CardDecodeError, load_card
from cards.catalog import catalog_for
from cards.courier import Courier
from cards.model import NoteBlock
from handlers.approval_cards import ApprovalCards
from handlers.language import language_of_chat
from storage.approvals import ApprovalRepo
from storage.errors import NotFound, StoreUnavailable
from storage.messages.chats import ChatRepo
from storage.messages.outbox import DeliveryAttempt, OutboxRepo
from storage.people import PeopleRepo
from storage.records.approvals import ApprovalState
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, ChatKind, Language, PersonRole

log = logging.getLogger(__name__)

_ENDING = re.compile(r"(task:[^:]+):end:")
_APPROVAL = re.compile(r"approval:([^:]+):")


@dataclass(kw_only=True, eq=False)
class UndeliverableNotifier:
    """Receives messages whose chat is unreachable before they are given up. `language` is the fixed
    language of all cards, None for each reader's own."""

    chats: ChatRepo
    people: PeopleRepo
    outbox: OutboxRepo
    courier: Courier
    language: Language | None
    approvals: ApprovalRepo
    approval_cards: ApprovalCards

    async def __call__(self, tried: DeliveryAttempt) -> None:
        """Forward the message to every owner in private. Safe to repeat."""
        if asked := _APPROVAL.match(tried.row.key):
            await self._ask_owners(asked[1], tried.chat)
        elif ended := _ENDING.match(tried.row.key):
            await self._forward_to_owners(tried, result_key=ended[1])

    async def is_reader_removed(self, tried: DeliveryAttempt) -> bool:
        """Whether the reader has lost access; messages about their tasks then go to the owners."""
        chat = tried.chat
        about_work = tried.row.key.startswith(("task:", "approval:"))
        if not about_work or chat.kind is not ChatKind.PRIVATE or chat.person_id is None:
            return False
        try:
            return not await self.people.has_access(chat.person_id)
        except StoreUnavailable as error:
            log.warning("Cannot check whether chat %s is still allowed: %s", chat.id, error)
            return False

    async def _ask_owners(self, approval_id: str, closed: Chat) -> None:
        """Ask the owners for a decision that no other person can make; existing copies are not sent
        again."""
        try:
            approval = await self.approvals.get(approval_id)
        except NotFound:
            return
        if approval.state is ApprovalState.WAITING:
            fallback = self.language or Language.ENGLISH
            await self.approval_cards.post_to_chats(
                approval, await self._owner_chats(closed), fallback=fallback
            )

    async def _forward_to_owners(self, tried: DeliveryAttempt, *, result_key: str) -> None:
        """Forward the notice with its files, followed by the task's card with the result."""
        result = await self.outbox.find_by_key(result_key)
        try:
            card = load_card(tried.row.card)
            if result is not None:
                card = replace(card, blocks=(*card.blocks, *load_card(result.card).blocks))
        except CardDecodeError:
            log.warning("Outbox %s cannot be sent: another version wrote it", tried.row.id)
            return
        closed = tried.chat.title or tried.chat.external_id
        for chat in await self._owner_chats(tried.chat):
            spoken = self.language or await language_of_chat(self.people, chat)
            note = catalog_for(spoken or Language.ENGLISH)("mail.returned", chat=closed)
            await self.courier.send(
                chat.id,
                replace(card, blocks=(*card.blocks, NoteBlock(note)), fallback=""),
                key=f"returned:{tried.row.id}:{chat.id}",
                urgency=DeliveryUrgency.ANSWER,
            )

    async def _owner_chats(self, closed: Chat) -> Sequence[Chat]:
        """Private chats of all owners, except the unreachable chat."""
        place = (closed.channel, closed.external_id)
        owners = await self.chats.list_private(PersonRole.OWNER)
        return [chat for chat in owners if (chat.channel, chat.external_id) != place]
