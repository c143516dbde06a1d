"""Put together what people see and change of what is remembered."""

from __future__ import annotations

from collections.abc import Mapping

from bot.app.memory.book import MemoryBookService
from bot.app.memory.carrying import build_carrying
from bot.app.memory.recall import Recalling
from bot.app.memory.restoring import Restoring
from bot.app.memory.writing import Writing
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.memory.cleaning import Cleaning
from bot.engine.memory.orders import Orders
from bot.engine.memory.writing.forgotten import Forgotten
from bot.transports.clock import Clock
from storage.memory.figures import MemoryFigures
from storage.memory.living.vectors import Vectors


def build_book(
    settings: Settings, store: Store, clock: Clock, *, writing: Writing, recalling: Recalling
) -> MemoryBookService:
    carrying = build_carrying(settings.home, store, writing)

    async def back_up() -> str:
        return await carrying.back_up(clock.now())

    async def quality() -> Mapping[str, float]:
        made = await writing.quality.of(today=clock.now().date())
        return {
            "facts": made.facts,
            "filtered": made.filtered,
            "refused": made.refused,
            "auto": made.long_term,
            "candidates": made.candidates,
            "confirmed": made.confirmed,
            "rejected": made.rejected,
            "undone": made.undone,
            "demoted": made.demoted,
            "suspicious": made.suspicious_rate,
        }

    cleaning = Cleaning(
        db=store.db,
        entries=writing.entries,
        changed=writing.changed,
        orders=Orders(store.marks),
        back_up=back_up,
        now=clock.now,
        forgets=settings.memory.forget,
    )
    return MemoryBookService(
        entries=writing.entries,
        figures=MemoryFigures(store.db),
        vectors=Vectors(store.db),
        writer=writing.writer,
        recall=recalling.recall,
        uses=recalling.uses,
        carrying=carrying,
        restoring=Restoring(
            db=store.db,
            entries=writing.entries,
            changed=writing.changed,
            orders=Orders(store.marks),
            members=store.people.members,
            home=settings.home,
            now=clock.now,
        ),
        cleaning=cleaning,
        forgotten=Forgotten(store.marks),
        quality=quality,
        now=clock.now,
        zone=settings.zone,
        embedder=settings.embedding_model,
    )
