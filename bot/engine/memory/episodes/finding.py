"""Episodes that a message refers back to: by words of cue, by days, by what was spoken of."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta, tzinfo
from math import exp, log

from bot.engine.memory.scopes import Reader
from storage.memory.entries import EntryRepo
from storage.memory.lexicon.dates import day_tokens, mentions
from storage.memory.words import terms
from storage.records.memory.entries import Entry, EntryId, MemoryKind

MOST = 3
_LOOKED_AT = 200
_NEWEST = 20
_LATELY = timedelta(days=7)
_HALF_LIFE = timedelta(days=30)

_BACK = re.compile(
    r"上次|上回|那次|还记得|之前(?:讨论|说|聊|提)|继续(?:上|之前|昨|讨论|聊)|接着(?:上|聊|说)"
    r"|\b(?:earlier|last time|previously|we (?:discussed|talked|spoke)|continue (?:with|where|from)"
    r"|remember (?:when|what|that|our)|pick up where)\b",
    re.IGNORECASE,
)
_LATEST = re.compile(
    r"上次|上回|那次|最近|\b(?:last time|recently|lately|the other day)\b", re.IGNORECASE
)


class EpisodeFinder:
    def __init__(self, *, entries: EntryRepo, now: Callable[[], datetime], zone: tzinfo) -> None:
        self._entries = entries
        self._now = now
        self._zone = zone

    async def referred_to(
        self, reader: Reader, said: str, known: Collection[EntryId] = ()
    ) -> Sequence[tuple[Entry, float]]:
        """The episodes that fit best, with their scores; none where nothing refers back. `known`
        are memories that belong to what is said."""
        now = self._now()
        days = [m for m in mentions(said, now.astimezone(self._zone).date()) if m.is_relative]
        if not (_BACK.search(said) or days) or not reader.scopes:
            return ()
        kinds = (MemoryKind.EPISODE,)
        found = await self._entries.list(reader.scopes, kinds=kinds, limit=_LOOKED_AT)
        wanted = {token for mention in days for token in mention.tokens}
        some = [each for each in found if wanted & self._days(each)]
        if not days and _LATEST.search(said):
            some = [each for each in found if now - each.said_at <= _LATELY]
        words = frozenset(terms(said))
        scored = [(each, _score(each, words, known, now)) for each in some or found[:_NEWEST]]
        return sorted(scored, key=lambda pair: pair[1], reverse=True)[:MOST]

    def _days(self, episode: Entry) -> frozenset[str]:
        return frozenset(day_tokens(episode.said_at.astimezone(self._zone).date()))


def _score(
    episode: Entry, words: frozenset[str], known: Collection[EntryId], now: datetime
) -> float:
    age = max(timedelta(), now - episode.said_at)
    recency = exp(-log(2) * (age / _HALF_LIFE))
    theirs = frozenset(terms(" ".join((episode.text, *episode.keywords))))
    shared = len(words & theirs) / max(1, len(words))
    evidence = set(episode.evidence)
    same = len(evidence & set(known)) / max(1, min(len(evidence), len(known) or 1))
    return 0.3 * recency + 0.4 * shared + 0.3 * same
