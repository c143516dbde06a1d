"""Notifies owners once of each skill that was added or changed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from bot.engine.skills.skill_library import SkillLibrary
from cards.catalog import TextCatalog
from cards.courier import OwnerCardSender
from cards.model import Card, FileBlock
from cards.views.skills import exceeds_card, skill_card, skills_card
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.records.skills import SkillCatalog, SkillListing, SkillState

log = logging.getLogger(__name__)

SCAN_SECONDS = 3.0
"""Polling interval, because no event reports copied folders; a scan takes 2 ms."""

MAX_CARDS = 3
"""More new skills than this share one card."""

_ANNOUNCED_KEY = "skills:announced"
_MAX_REMEMBERED = 1_000
_UNREVIEWED = {SkillState.NEW, SkillState.CHANGED}


class SkillReviewNotifier:
    """Satisfies `app.lifecycle.AppService`; covers the Boss's own skills, not those of projects.

    A skill is announced once two scans found it unchanged, so that no half-copied folder is
    shown."""

    name = "skill review"

    def __init__(
        self,
        *,
        library: SkillLibrary,
        key_values: KeyValueStore,
        owners: OwnerCardSender,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._library = library
        self._key_values = key_values
        self._owners = owners
        self._sleep = sleep
        self._seen_last: frozenset[str] = frozenset()
        self._announced: list[str] | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        """No preparation is needed."""

    async def run(self) -> None:
        while True:
            try:
                await self.notify_new()
            except StoreUnavailable as error:
                log.warning("new skills cannot be announced now: %s", error)
            await self._sleep(SCAN_SECONDS)

    async def notify_new(self) -> None:
        """Announce skills that are settled and not announced yet."""
        if self._announced is None:
            self._announced = list(await self._key_values.get(_ANNOUNCED_KEY) or ())
        catalog = await self._library.list_skills()
        waiting = {_skill_id(each): each for each in catalog.skills if each.state in _UNREVIEWED}
        settled = self._seen_last & waiting.keys() - set(self._announced)
        self._seen_last = frozenset(waiting)
        if not settled:
            return
        if not await self._owners.list_chats():
            return
        news = tuple(waiting[each] for each in sorted(settled))
        try:
            await self._notify(news)
        except StoreUnavailable:
            raise
        except Exception:
            # Files that anyone can add must not stop the service.
            log.exception("skills cannot be shown: %s", ", ".join(each.skill.name for each in news))
        announced = [*self._announced, *sorted(settled)][-_MAX_REMEMBERED:]
        await self._key_values.put(_ANNOUNCED_KEY, announced)
        self._announced = announced

    async def _notify(self, news: Sequence[SkillListing]) -> None:
        if len(news) > MAX_CARDS:
            catalog = SkillCatalog(skills=tuple(news))
            key = f"skills:{_skill_id(news[0])}"
            await self._owners.notify(key, lambda words: skills_card(catalog, words, owner=True))
            return
        for each in news:
            whole = (
                await self._library.bundle_files(each.skill) if exceeds_card(each.skill) else None
            )
            await self._owners.notify(
                f"skill:{_skill_id(each)}", partial(_announcement, each, full_text=whole)
            )


def _announcement(listed: SkillListing, words: TextCatalog, *, full_text: FileBlock | None) -> Card:
    note = words(f"skill.announced_{listed.state}")
    return skill_card(listed, words, owner=True, full_text=full_text, note=note)


def _skill_id(listed: SkillListing) -> str:
    """Identifies exactly these files under this name."""
    return f"{listed.skill.name}:{listed.skill.hash[:32]}"
