"""Who asks people about what may be worth keeping for long."""

from __future__ import annotations

from datetime import timedelta

from bot.app.memory.writing import Writing
from bot.app.store import Store
from bot.engine.dispatch.requests import Requests
from bot.engine.memory.writing.candidates import CandidateAsker
from bot.transports.clock import Clock
from handlers.language import read_in
from storage.records.people import ChatId, Language


def build_asker(
    store: Store,
    clock: Clock,
    writing: Writing,
    requests: Requests,
    *,
    fixed: Language | None,
    lifetime: timedelta,
) -> CandidateAsker:
    """`fixed` is the language that all cards are written in, None for that of whoever reads; a
    request is open for its `lifetime`."""

    async def spoken(chat: ChatId) -> Language:
        room = await store.people.chat(chat)
        return fixed or await read_in(store.people, room) or Language.ENGLISH

    return CandidateAsker(
        db=store.db,
        entries=writing.entries,
        cells=writing.cells,
        approvals=store.approvals,
        marks=store.marks,
        changed=writing.changed,
        private=store.chats.private,
        show=requests.put,
        show_settled=requests.show_all,
        spoken=spoken,
        ids=store.ids,
        lifetime=lifetime,
        now=clock.now,
    )
