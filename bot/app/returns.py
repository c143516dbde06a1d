"""What became of a task, and what it waits for, reaches an owner where the chat that asked cannot
be written to."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace

from cards.card_json import BadCard, load_card
from cards.courier import Courier
from cards.model import Card, Note
from cards.words import Words, words_for
from handlers.language import read_in
from handlers.work.copies import Copies
from storage.approvals import Approvals
from storage.errors import NotFound, StoreUnavailable
from storage.mail.chats import Chats
from storage.mail.outbox import Try
from storage.people import People
from storage.records.approvals import ApprovalState
from storage.records.messages import Urgency
from storage.records.people import Chat, ChatKind, Language, Role

log = logging.getLogger(__name__)

_ENDING = re.compile(r"task:[^:]+:end:")
_APPROVAL = re.compile(r"approval:([^:]+):")


class Returns:
    """Told of each letter whose chat is closed to us, before that letter is given up. `language`
    is the one all cards are written in, None for each reader's own."""

    def __init__(
        self,
        *,
        chats: Chats,
        people: People,
        courier: Courier,
        language: Language | None,
        approvals: Approvals,
        copies: Copies,
    ) -> None:
        self._chats = chats
        self._people = people
        self._courier = courier
        self._language = language
        self._approvals = approvals
        self._copies = copies

    async def __call__(self, tried: Try) -> None:
        """Show it to every owner in private. Doing so again changes nothing."""
        if asked := _APPROVAL.match(tried.row.key):
            await self._ask_owners(asked[1], tried.chat)
        elif _ENDING.match(tried.row.key):
            await self._tell_owners(tried)

    async def is_gone(self, tried: Try) -> bool:
        """Whether its reader was removed: what their tasks have to tell is for owners now."""
        chat = tried.chat
        about_work = tried.row.key.startswith(("task:", "approval:"))
        if not about_work or chat.kind is not ChatKind.PRIVATE or chat.person_id is None:
            return False
        try:
            return not await self._people.is_let_in(chat.person_id)
        except StoreUnavailable as error:
            log.warning("Whether chat %s is still let in cannot be looked up: %s", chat.id, error)
            return False

    async def _ask_owners(self, approval_id: str, closed: Chat) -> None:
        """A decision that nobody can be asked for is asked of the owners; whoever has a copy of
        it already gets no other."""
        try:
            approval = await self._approvals.get(approval_id)
        except NotFound:
            return
        if approval.state is ApprovalState.WAITING:
            fallback = self._language or Language.ENGLISH
            await self._copies.tell(approval, await self._owners(closed), fallback=fallback)

    async def _tell_owners(self, tried: Try) -> None:
        try:
            card = load_card(tried.row.card)
        except BadCard:
            log.warning("Outbox %s cannot be handed on: another version wrote it", tried.row.id)
            return
        for chat in await self._owners(tried.chat):
            await self._courier.send(
                chat.id,
                _returned(card, tried.chat, await self._words(chat)),
                key=f"returned:{tried.row.id}:{chat.id}",
                urgency=Urgency.ANSWER,
            )

    async def _owners(self, closed: Chat) -> Sequence[Chat]:
        """Where owners can be told in private, but for the place that is closed."""
        place = (closed.channel, closed.external_id)
        owners = await self._chats.private(Role.OWNER)
        return [chat for chat in owners if (chat.channel, chat.external_id) != place]

    async def _words(self, chat: Chat) -> Words:
        spoken = self._language or await read_in(self._people, chat)
        return words_for(spoken or Language.ENGLISH)


def _returned(card: Card, asked: Chat, words: Words) -> Card:
    note = words("mail.returned", chat=asked.title or asked.external_id)
    return replace(card, blocks=(*card.blocks, Note(markdown=note)), fallback="")
