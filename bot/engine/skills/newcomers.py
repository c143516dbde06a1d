"""Skills dropped in or changed while the program runs are shown to its owners, each once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from bot.engine.skills.library import Library
from cards.courier import Courier
from cards.model import Card
from cards.views.workers.skills import has_more, shelf_card, skill_card
from cards.words import Words, words_for
from handlers.language import read_in
from handlers.ports import People
from storage.errors import StoreUnavailable
from storage.marks import Marks
from storage.records.messages import Urgency
from storage.records.people import Chat, Language
from storage.records.workers.skills import Listed, SkillShelf, SkillState

log = logging.getLogger(__name__)

SECONDS = 3.0
"""Between two looks: nothing tells of a folder that somebody copies. A look costs 2 ms."""

MOST_CARDS = 3
"""Of more that come at once, one card tells."""

_MARK = "skills:announced"
_REMEMBERED = 1_000
_UNDECIDED = {SkillState.NEW, SkillState.CHANGED}


class Newcomers:
    """Satisfies `lifecycle.Service`. Of the Boss's own shelves only: a project's skills are met
    where the project is. A folder is told of when two looks found the same in it, so that nobody
    is shown half a copy. `owners` are the chats in which owners are told something in private."""

    name = "newcomers"

    def __init__(
        self,
        *,
        library: Library,
        marks: Marks,
        owners: Callable[[], Awaitable[Sequence[Chat]]],
        people: People,
        courier: Courier,
        language: Language | None,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._library = library
        self._marks = marks
        self._owners = owners
        self._people = people
        self._courier = courier
        self._language = language
        self._sleep = sleep
        self._seen: frozenset[str] = frozenset()
        self._told: list[str] | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except StoreUnavailable as error:
                log.warning("new skills cannot be told of now: %s", error)
            await self._sleep(SECONDS)

    async def look(self) -> None:
        """Tell of what is there since the last look and was never told of."""
        if self._told is None:
            self._told = list(await self._marks.get(_MARK) or ())
        shelf = await self._library.shelf()
        waiting = {_id(each): each for each in shelf.skills if each.state in _UNDECIDED}
        settled = self._seen & waiting.keys() - set(self._told)
        self._seen = frozenset(waiting)
        if not settled:
            return
        chats = await self._owners()
        if not chats:
            return
        news = tuple(waiting[each] for each in sorted(settled))
        try:
            for chat in chats:
                await self._tell(chat, news)
        except StoreUnavailable:
            raise
        except Exception:
            # The boundary between what anybody may put into a folder and the whole program.
            log.exception("skills cannot be shown: %s", ", ".join(each.skill.name for each in news))
        told = [*self._told, *sorted(settled)][-_REMEMBERED:]
        await self._marks.put(_MARK, told)
        self._told = told

    async def _tell(self, chat: Chat, news: Sequence[Listed]) -> None:
        words = await self._words(chat)
        if len(news) > MOST_CARDS:
            card = shelf_card(SkillShelf(skills=tuple(news)), words, owner=True)
            await self._send(chat, card, f"skills:{_id(news[0])}")
            return
        for each in news:
            whole = await self._library.whole(each.skill) if has_more(each.skill) else None
            note = words(f"skill.announced_{each.state}")
            card = skill_card(each, words, owner=True, whole=whole, note=note)
            await self._send(chat, card, f"skill:{_id(each)}")

    async def _send(self, chat: Chat, card: Card, key: str) -> None:
        key = f"{key}:{chat.id}"
        await self._courier.send(chat.id, card, key=key, urgency=Urgency.NOTICE)

    async def _words(self, chat: Chat) -> Words:
        spoken = self._language or await read_in(self._people, chat)
        return words_for(spoken or Language.ENGLISH)


def _id(listed: Listed) -> str:
    """Of exactly these files under this name."""
    return f"{listed.skill.name}:{listed.skill.hash[:32]}"
