"""What is remembered, as workers and people find it."""

from __future__ import annotations

from dataclasses import dataclass

from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.remembering.briefing import Remembering
from bot.engine.agent.workbench import Briefing
from bot.engine.memory.recall import Fusion, Recall, dated_words
from bot.engine.memory.telling.inject import Injection
from bot.engine.memory.uses import Uses
from bot.transports.clock import Clock
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.memory.living.uses import UseRepo
from storage.records.tasks import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalling:
    entries: EntryRepo
    recall: Recall
    uses: Uses
    remembering: Remembering


def searching(settings: Settings, store: Store, clock: Clock) -> Recall:
    """The one way to look something up, whoever asks."""
    chosen = settings.memory
    index = Index(store.db)
    return Recall(
        entries=EntryRepo(store.db, store.ids, index, zone=settings.zone),
        index=index,
        words=dated_words(settings.zone),
        now=clock.now,
        fusion=Fusion(kind=chosen.fusion, vectors=chosen.vector_weight, cut=chosen.recall_cut),
    )


def build_recall(
    settings: Settings, store: Store, clock: Clock, *, told_anyway: Briefing
) -> Recalling:
    """`told_anyway` is what workers are told besides, so that it is not told twice."""
    entries = EntryRepo(store.db, store.ids, Index(store.db), zone=settings.zone)
    chosen = settings.memory
    recall = searching(settings, store, clock)
    uses = Uses(db=store.db, entries=entries, repo=UseRepo(store.db), now=clock.now)
    injection = Injection(
        entries=entries,
        recall=recall,
        heard=uses.heard,
        now=clock.now,
        budget=chosen.told_tokens,
    )

    async def project_of(task: TaskId) -> str:
        return (await store.work.tasks.get(task)).project_dir

    return Recalling(
        entries=entries,
        recall=recall,
        uses=uses,
        remembering=Remembering(
            injection=injection,
            uses=uses,
            chat_of=store.people.chat,
            project_of=project_of,
            told_anyway=told_anyway,
            patience=chosen.recall_seconds,
        ),
    )
