"""Talk that stopped at a call of a tool: its requests are shown, and it goes on by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Protocol, TypeAlias

from bot.engine.agent.leave.again import brief
from bot.engine.agent.leave.asking import Asker
from cards.model import Card
from cards.views.chat import answer_card
from cards.views.errors import notice_card
from cards.words import words_for
from handlers.ports import Answered, BackendFailure, People, Question
from storage.agents.calls import CallRepo
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.approvals import Approval
from storage.records.messages import Urgency
from storage.records.people import ChatId, Language
from storage.records.tools import CallRecord, CallState
from storage.sessions import Session

log = logging.getLogger(__name__)

_STORE_REST = 5.0

Kept: TypeAlias = Callable[[Transaction], Awaitable[None]]
Keep: TypeAlias = Callable[[Answered], Awaitable[Kept]]
"""Makes an answer ready to be posted in the transaction that keeps its turn."""


class GoesOn(Protocol):
    async def go_on(self, question: Question, keep: Keep) -> Answered:
        """Answer what was asked before, now that all it waited for has been decided."""
        ...


class Post(Protocol):
    """How an answer gets into its chat."""

    async def prepared(self, card: Card) -> Card: ...

    async def post(
        self,
        tx: Transaction,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: Urgency,
        reply_to: str = "",
    ) -> object: ...

    def wake(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """What talk needs to stop at a call."""

    calls: CallRepo
    asker: Asker
    wake: Callable[[], None]

    async def lost(self, session: Session) -> str:
        """What to tell the model of a turn that was cut off; empty for nothing."""
        return brief(await self.calls.lost(None, session))

    async def ask(self, tx: Transaction, session_id: str) -> Approval | None:
        """Ask for what the session waits for now."""
        return await self.asker.next(tx, await self.calls.suspended(session_id, tx=tx), None)


class Talks:
    """Everything is in the store: a restart changes nothing. `show` puts a request before those
    who may decide, `catch_up` puts right the cards of those that nobody has to decide any more;
    `language_of` is the chat's, or the program's."""

    name = "talks"

    def __init__(
        self,
        *,
        db: Database,
        calls: CallRepo,
        asker: Asker,
        people: People,
        talk: GoesOn,
        post: Post,
        news: asyncio.Event,
        show: Callable[[Approval], Awaitable[None]],
        catch_up: Callable[[], Awaitable[None]],
        language: Language | None,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._db = db
        self._calls = calls
        self._asker = asker
        self._people = people
        self._talk = talk
        self._post = post
        self._news = news
        self._show = show
        self._catch_up = catch_up
        self._language = language
        self._now = now
        self._sleep = sleep
        self._failed: dict[str, int] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def start(self, stack: AsyncExitStack) -> None:
        """What the last life was making in talk is cut off."""
        async with self._db.write() as tx:
            await self._calls.cut_talks(tx, now=self._now())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                try:
                    await self.look(group)
                except StoreUnavailable as error:
                    log.warning("stopped talk waits for the store: %s", error)
                    await self._sleep(_STORE_REST)
                    continue
                await self._news.wait()

    async def look(self, group: asyncio.TaskGroup) -> None:
        """Ask for what is open, and go on with what is decided."""
        await self._catch_up()
        for session_id, calls in _by_session(await self._calls.suspended_talks()):
            if any(call.state is CallState.OPEN for call in calls):
                await self._ask(calls)
            elif session_id not in self._under_way and self._is_new(session_id, calls):
                work = group.create_task(self._go_on(session_id, calls))
                self._under_way[session_id] = work

    async def _ask(self, calls: Sequence[CallRecord]) -> None:
        async with self._db.write() as tx:
            approval = await self._asker.next(tx, calls, None)
        if approval is not None:
            await self._show(approval)

    def _is_new(self, session_id: str, calls: Sequence[CallRecord]) -> bool:
        """What has failed is left to the person's next message, or to the next start."""
        return self._failed.get(session_id) != calls[-1].id

    async def _go_on(self, session_id: str, calls: Sequence[CallRecord]) -> None:
        last = calls[-1]
        try:
            await self._answer(last)
        except BackendFailure as failure:
            self._failed[session_id] = last.id
            await self._tell_failure(last, failure)
        except StoreUnavailable as error:
            log.warning("talk in %s cannot be kept: %s", last.chat_id, error)
            await self._sleep(_STORE_REST)
        finally:
            del self._under_way[session_id]
            self._news.set()

    async def _answer(self, last: CallRecord) -> None:
        if last.chat_id is None or last.person_id is None:
            return
        chat = await self._people.chat(last.chat_id)
        person = await self._people.get(last.person_id)
        language = await self._language_in(last)
        question = Question(
            person=person,
            chat=chat,
            text="",
            language=language,
            source=f"talk:{last.id}",
            settle=True,
            resumes=True,
        )

        async def keep(answered: Answered) -> Kept:
            card = answer_card(
                answered.text,
                words_for(language),
                notes=answered.notes,
                files=answered.files,
                sizes=answered.sizes,
            )
            ready = await self._post.prepared(card)

            async def kept(tx: Transaction) -> None:
                if answered.text.strip() or answered.files:
                    key = f"talk:{last.id}"
                    await self._post.post(tx, chat.id, ready, key=key, urgency=Urgency.ANSWER)

            return kept

        await self._talk.go_on(question, keep)
        self._post.wake()

    async def _tell_failure(self, last: CallRecord, failure: BackendFailure) -> None:
        if last.chat_id is None:
            return
        words = words_for(await self._language_in(last))
        card = await self._post.prepared(notice_card("", words(failure.hint)))
        async with self._db.write() as tx:
            key = f"talk:{last.id}:failed"
            await self._post.post(tx, last.chat_id, card, key=key, urgency=Urgency.ANSWER)
        self._post.wake()

    async def _language_in(self, call: CallRecord) -> Language:
        if self._language is not None or call.chat_id is None or call.person_id is None:
            return self._language or Language.ENGLISH
        spoken = (await self._people.chat(call.chat_id)).settings.language
        person = await self._people.get(call.person_id)
        return spoken or person.language or Language.ENGLISH


def _by_session(
    calls: Sequence[CallRecord],
) -> Iterator[tuple[str, Sequence[CallRecord]]]:
    ordered = sorted(calls, key=lambda call: (call.session_id, call.id))
    for session_id, of_one in groupby(ordered, key=lambda call: call.session_id):
        yield session_id, tuple(of_one)
