"""What is remembered, as workers and people find it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo

from bot.app.lifecycle import Service
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.remembering.briefing import Remembering
from bot.engine.agent.workbench import Briefing
from bot.engine.memory.changed import Changed
from bot.engine.memory.episodes.finding import EpisodeFinder
from bot.engine.memory.episodes.keeper import EpisodeKeeper
from bot.engine.memory.episodes.retelling import Reteller
from bot.engine.memory.links import Spreading, Tying
from bot.engine.memory.meaning.embedder import Embedder, prefixes_of
from bot.engine.memory.meaning.embedder import Service as Asked
from bot.engine.memory.meaning.judge import CrossEncoder
from bot.engine.memory.meaning.meanings import Meanings
from bot.engine.memory.recall import Fusion, Recall, dated_words
from bot.engine.memory.telling.inject import Injection
from bot.engine.memory.uses import Uses
from bot.transports.clock import Clock
from storage.memory.entries import EntryRepo
from storage.memory.living.links import LinkRepo
from storage.memory.living.talks import TalkRepo
from storage.memory.living.uses import UseRepo
from storage.memory.living.vectors import Vectors
from storage.records.tasks import TaskId

_EMBEDDED_IN = 30.0
"""Seconds for a batch of texts; a query is given less."""
_JUDGED_IN = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalling:
    entries: EntryRepo
    recall: Recall
    uses: Uses
    remembering: Remembering
    meanings: Meanings | None
    store: Store
    now: Callable[[], datetime]
    zone: tzinfo

    def follow(self, changed: Changed, reteller: Reteller | None = None) -> tuple[Service, ...]:
        """What ties all that is `changed`, sums up conversations (by a `reteller`, where there is
        one), and embeds everything where there is a service for that."""
        store = self.store
        tying = Tying(
            db=store.db,
            repo=LinkRepo(store.db),
            marks=store.marks,
            changed=changed,
            sleep=asyncio.sleep,
        )
        episodes = EpisodeKeeper(
            db=store.db,
            entries=self.entries,
            talks=TalkRepo(store.db),
            marks=store.marks,
            changed=changed,
            now=self.now,
            zone=self.zone,
            reteller=reteller,
        )
        if self.meanings is None:
            return tying, episodes
        self.meanings.changed = changed
        return tying, episodes, self.meanings


def searching(
    settings: Settings, store: Store, clock: Clock, meanings: Meanings | None = None
) -> Recall:
    """The one way to look something up, whoever asks."""
    chosen = settings.memory
    key = settings.embedding_api_key.get_secret_value()
    judge = None
    if chosen.rerank_url:
        service = Asked(key, timeout=_JUDGED_IN)
        judge = CrossEncoder(service, chosen.rerank_url, chosen.rerank_model)
    return Recall(
        entries=store.memory.entries,
        index=store.memory.index,
        words=dated_words(settings.zone),
        now=clock.now,
        fusion=Fusion(kind=chosen.fusion, vectors=chosen.vector_weight, cut=chosen.recall_cut),
        neighbours=meanings,
        associations=Spreading(LinkRepo(store.db)),
        judge=judge,
    )


def build_meanings(settings: Settings, store: Store) -> Meanings | None:
    """None where the settings name no service that embeds texts."""
    if not (settings.embedding_base_url and settings.embedding_model):
        return None
    service = Asked(settings.embedding_api_key.get_secret_value(), timeout=_EMBEDDED_IN)
    base_url, model, chosen = settings.embedding_base_url, settings.embedding_model, settings.memory
    prefixes = prefixes_of(model, chosen.query_prefix, chosen.passage_prefix)
    return Meanings(
        db=store.db,
        vectors=Vectors(store.db),
        embedder=Embedder(service, base_url, model, prefixes),
        service=service,
        changed=Changed(),
        sleep=asyncio.sleep,
        clock=time.monotonic,
    )


def build_recall(
    settings: Settings, store: Store, clock: Clock, *, told_anyway: Briefing
) -> Recalling:
    """`told_anyway` is what workers are told besides, so that it is not told twice."""
    entries = store.memory.entries
    chosen = settings.memory
    meanings = build_meanings(settings, store)
    recall = searching(settings, store, clock, meanings)
    uses = Uses(db=store.db, entries=entries, repo=UseRepo(store.db), now=clock.now)
    injection = Injection(
        entries=entries,
        recall=recall,
        heard=uses.heard,
        now=clock.now,
        budget=chosen.told_tokens,
        zone=settings.zone,
        episodes=EpisodeFinder(entries=entries, now=clock.now, zone=settings.zone),
    )

    async def project_of(task: TaskId) -> str:
        return (await store.work.tasks.get(task)).project_dir

    return Recalling(
        entries=entries,
        recall=recall,
        uses=uses,
        meanings=meanings,
        store=store,
        now=clock.now,
        zone=settings.zone,
        remembering=Remembering(
            injection=injection,
            uses=uses,
            chat_of=store.people.chat,
            project_of=project_of,
            told_anyway=told_anyway,
            patience=chosen.recall_seconds,
        ),
    )
