"""Conversations: one model session per chat, streamed, cut short by whatever is newer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bot.engine.agent.account import Account
from bot.engine.agent.budget import ask_for_more
from bot.engine.agent.chat.turns import Turns
from bot.engine.agent.desk import Ask, Desk, Reply
from bot.engine.agent.pictures import picture_kind
from bot.engine.agent.workbench import Job, Workbench
from bot.engine.llm.answers import PROPOSE_TASK
from bot.engine.llm.base import (
    BackendError,
    BackendUnavailable,
    BudgetReached,
    Chosen,
    Limits,
    Picture,
    Purpose,
    Tool,
)
from bot.engine.llm.events import AgentEvent, TextDelta
from cards.formats import cut
from cards.words import words_for
from handlers.ports import Answered, BackendFailure, Proposal, Question, Show, TalkState
from storage.db import Database
from storage.ids import Ids
from storage.records.approvals import Approval
from storage.records.people import ChatId, Language
from storage.records.status import ModelChoice
from storage.records.tasks import Priority
from storage.sessions import Session, SessionRepo

log = logging.getLogger(__name__)

IDLE_RESET = timedelta(minutes=60)
MOST_TURNS = 10
MOST_TOKENS = 50_000

_MOST_TRIES = 3
_PAUSE = 1.0
_LONGEST_PAUSE = 15.0
"""Somebody is waiting: a service that sends us away for longer is told about at once."""

_TITLE = 120
_LONGEST_UNANSWERED = 4000
_UNANSWERED = "[Said just before; your answer was cut short by what follows: “{text}”]\n"

_SYSTEM = """\
You are Shiftboss, the foreman of a team of AI workers, talking with your Boss in a chat. Be
short, concrete and kind. If the Boss asks for work that leaves a result behind (something to
make, change, find out, write or watch), call the tool propose_task once and say nothing more:
the Boss then decides by button. Answer questions and small talk yourself. {language}"""

_LANGUAGE = {
    Language.CHINESE: "Answer in Simplified Chinese unless the Boss writes in another language.",
    Language.ENGLISH: "Answer in English unless the Boss writes in another language.",
}

_PROPOSAL_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "A short title, in the Boss's language."},
        "task": {
            "type": "string",
            "description": "The whole task, so that a worker who has not read this chat can do it.",
        },
        "priority": {"type": "string", "enum": ["urgent", "important", "normal"]},
    },
    "required": ["title", "task"],
    "additionalProperties": False,
}


class Conversations:
    """Satisfies `handlers.ports.Talk`."""

    def __init__(
        self,
        *,
        db: Database,
        sessions: SessionRepo,
        desk: Desk,
        home: Path,
        bench: Workbench,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        ids: Ids | None = None,
        patience: timedelta = timedelta(days=7),
        turns: Turns | None = None,
    ) -> None:
        """`patience` is how long a request for more money stays open; `turns` says what a newer
        message does to an answer."""
        self._db = db
        self._sessions = sessions
        self._desk = desk
        self._home = home
        self._bench = bench
        self._now = now
        self._sleep = sleep
        self._ids = ids or Ids()
        self._patience = patience
        self._turns = turns or Turns()
        self._unanswered: dict[ChatId, str] = {}

    async def answer(self, question: Question, show: Show) -> Answered:
        self._turns.choose(question.chat.id, question.chat.settings.queue)
        try:
            async with self._turns.one(question.chat.id):
                return await self._answer(question, show)
        except BudgetReached as error:
            approval = await self._ask_for_more(question, error)
            raise BackendFailure(error.hint, approval=approval) from error
        except BackendError as error:
            raise BackendFailure(error.hint) from error

    def interrupt(self, chat_id: ChatId) -> bool:
        return self._turns.interrupt(chat_id)

    def arrived(self, chat_id: ChatId) -> bool:
        return self._turns.arrived(chat_id)

    def queue(self, chat_id: ChatId, queue: str) -> None:
        self._turns.choose(chat_id, queue)

    def waits(self, chat_id: ChatId) -> bool:
        return self._turns.waits(chat_id)

    async def reset(self, chat_id: ChatId) -> bool:
        self.interrupt(chat_id)
        self._unanswered.pop(chat_id, None)
        async with self._db.write() as tx:
            return await self._sessions.close(tx, _key(chat_id), now=self._now())

    async def state(self, chat_id: ChatId) -> TalkState | None:
        session = await self._sessions.open(_key(chat_id))
        if session is None:
            return None
        return TalkState(
            turns=session.turns,
            model=ModelChoice(backend=session.backend, model=session.model),
            started_at=session.started_at,
            last_used_at=session.last_used_at,
        )

    async def _answer(self, question: Question, show: Show) -> Answered:
        chosen = self._choose(question)
        persona = await self._bench.persona(question.chat.settings.persona)
        session = await self._session(question.chat.id, chosen, persona.name)
        proposals: list[Proposal] = []
        shown: list[str] = []

        async def watch(event: AgentEvent) -> None:
            if isinstance(event, TextDelta):
                shown.append(event.text)
                await show("".join(shown))

        async def work_on(ask: Ask) -> Reply:
            for pause in _pauses():
                try:
                    return await self._desk.ask(ask, chosen, session, watch)
                except BackendUnavailable as error:
                    wait = max(pause, error.retry_after or 0.0)
                    if wait > _LONGEST_PAUSE:
                        raise
                shown.clear()
                proposals.clear()
                await self._sleep(wait)
            return await self._desk.ask(ask, chosen, session, watch)

        ask = await self._ask(question, session, persona.name, proposals)
        work = asyncio.create_task(work_on(ask), name=f"answer in {question.chat.id}")
        async with self._turns.taken(question.chat.id, work) as turn:
            try:
                reply = await work
            except asyncio.CancelledError:
                if not turn.cut:
                    # It is we who are stopped, not the answer that was cut short.
                    work.cancel()
                    with suppress(asyncio.CancelledError, BackendError):
                        await work
                    raise
                self._unanswered[question.chat.id] = ask.prompt[-_LONGEST_UNANSWERED:]
                return Answered(text="".join(shown), interrupted=True)
        async with self._db.write() as tx:
            await self._desk.book(tx, reply)
        self._unanswered.pop(question.chat.id, None)
        words = words_for(question.language)
        return Answered(
            text=reply.result.text,
            proposal=proposals[0] if proposals else None,
            notes=(words("talk.cut"),) if reply.result.cut else (),
        )

    async def _ask_for_more(self, question: Question, error: BudgetReached) -> Approval:
        now = self._now()
        async with self._db.write() as tx:
            return await ask_for_more(
                tx,
                error.hit,
                task=None,
                chat_id=question.chat.id,
                title=cut(question.text, _TITLE),
                ids=self._ids,
                now=now,
                expires_at=now + self._patience,
            )

    def _choose(self, question: Question) -> Chosen:
        """This message's own choice before the chat's before the program's."""
        settings = question.chat.settings
        if question.model or question.backend:
            return self._desk.choose(question.model, question.backend)
        return self._desk.choose(settings.model, settings.backend)

    async def _session(self, chat_id: ChatId, chosen: Chosen, persona: str) -> Session:
        session = await self._sessions.open(_key(chat_id))
        if session is not None and _is_used_up(session, self._now()):
            async with self._db.write() as tx:
                await self._sessions.close(tx, _key(chat_id), now=self._now())
        return await self._desk.session(_key(chat_id), chosen, persona=persona)

    async def _ask(
        self, question: Question, session: Session, persona: str, proposals: list[Proposal]
    ) -> Ask:
        paths = [self._home / name for name in question.files]
        mimes = await asyncio.to_thread(lambda: [picture_kind(path) for path in paths])
        kinds = list(zip(paths, mimes, strict=True))
        pictures = tuple(Picture(path=path, mime=mime) for path, mime in kinds if mime)
        named = "".join(f"\n[file: {path.name}]" for path, mime in kinds if not mime)
        before = self._unanswered.get(question.chat.id, "")
        account = Account(person=question.person.id, chat=question.chat.id)
        job = Job(
            account=account,
            session=session,
            language=question.language,
            workspace=self._home / "workspaces" / f"chat-{question.chat.id}",
            persona=persona,
            text=question.text,
        )
        equipment = await self._bench.equip(job)
        proposing = () if question.settle else (_propose(question, proposals),)
        return Ask(
            purpose=Purpose.CHAT,
            prompt=(f"{question.brief}\n\n" if question.brief else "")
            + (_UNANSWERED.format(text=before) if before else "")
            + question.text
            + named,
            system=_SYSTEM.format(language=_LANGUAGE[question.language])
            + (f"\n\n{equipment.system}" if equipment.system else ""),
            language=question.language,
            account=account,
            workspace=job.workspace,
            facts={"text": question.text},
            pictures=pictures,
            tools=(*proposing, *equipment.tools),
            permit=equipment.permit,
            servers=equipment.servers,
            limits=Limits(turns=4),
        )


def _propose(question: Question, proposals: list[Proposal]) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        proposals.append(
            Proposal(
                title=str(arguments["title"]),
                text=str(arguments["task"]) or question.text,
                priority=Priority.named(str(arguments.get("priority", ""))) or Priority.IMPORTANT,
            )
        )
        return "The Boss is being asked. Say nothing more now."

    return Tool(
        name=PROPOSE_TASK,
        description="Ask the Boss, by button, whether to start this as a task.",
        schema=_PROPOSAL_SCHEMA,
        run=run,
    )


def _pauses() -> Iterator[float]:
    """Seconds to wait after each failed try but the last."""
    return (_PAUSE * 2**n for n in range(_MOST_TRIES - 1))


def _is_used_up(session: Session, now: datetime) -> bool:
    idle = now - session.last_used_at > IDLE_RESET
    return idle or session.turns >= MOST_TURNS or session.tokens > MOST_TOKENS


def _key(chat_id: ChatId) -> str:
    return f"chat:{chat_id}"
