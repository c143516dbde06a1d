"""Tells people that accounts were linked or taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cards.catalog import catalog_for
from cards.courier import Courier
from cards.views.account_links import link_news_card, memory_choices_card
from handlers.language import language_of_chat
from handlers.ports import HandlerServices, PeoplePort
from handlers.ports_people import AccountLinkPort
from storage.records.messages import DeliveryUrgency
from storage.records.people import AccountLink, AccountLinkState, Chat, Language, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLinkNotifier:
    """Tells both sides of links that were made or ended. `language` is that of all cards, None for
    the reader's."""

    links: AccountLinkPort
    people: PeoplePort
    courier: Courier
    language: Language | None = None

    async def notify(self) -> None:
        """Notify both sides of all new links and separations. Safe to repeat, and repeated at each
        start: a crash may come between a change and its notice."""
        for link in await self.links.list_untold():
            members = await self.people.list_members()
            for chat in await self.links.list_chats(link):
                await self._tell(link, chat, members)
            if link.state is AccountLinkState.LINKED:
                await self._show_choices(link)
            await self.links.mark_told(link)

    async def _tell(self, link: AccountLink, chat: Chat, members: Sequence[Member]) -> None:
        language = self.language or await language_of_chat(self.people, chat)
        own = [each for each in members if each.person.id == chat.person_id]
        card = link_news_card(
            link.state,
            own[0].accounts if own else (),
            catalog_for(language or Language.ENGLISH),
        )
        key = f"link:{link.id}:{link.state}:{chat.id}"
        await self.courier.send(chat.id, card, key=key, urgency=DeliveryUrgency.NOTICE)

    async def _show_choices(self, link: AccountLink) -> None:
        """Ask which of two exclusive memories holds, once, in the chat where the code was used."""
        if link.kept is None or link.taker_chat is None:
            return
        choices = await self.links.list_choices(link.kept)
        if not choices:
            return
        chat = await self.people.get_chat(link.taker_chat)
        language = self.language or await language_of_chat(self.people, chat)
        card = memory_choices_card(choices, catalog_for(language or Language.ENGLISH))
        key = f"link:{link.id}:choices"
        await self.courier.send(chat.id, card, key=key, urgency=DeliveryUrgency.NOTICE)


def link_notifier(services: HandlerServices) -> AccountLinkNotifier:
    return AccountLinkNotifier(
        links=services.account_links, people=services.people, courier=services.courier
    )
