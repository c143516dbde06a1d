"""Conversations: one model session per chat, streamed, cut short by whatever is newer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from bot.engine.agent.account import Account
from bot.engine.agent.budget import ask_for_more
from bot.engine.agent.chat.choice import Auto, choose
from bot.engine.agent.chat.eyes import Eyes, Seen
from bot.engine.agent.chat.made import Made, made, snapshot
from bot.engine.agent.chat.proposing import propose_task
from bot.engine.agent.chat.resets import Resets
from bot.engine.agent.chat.sent import unpacked
from bot.engine.agent.chat.turns import Turns
from bot.engine.agent.chat.unanswered import Unanswered
from bot.engine.agent.desk import Ask, Desk, Reply, Watch
from bot.engine.agent.leave.permits import afresh
from bot.engine.agent.leave.talks import Keep, Stops
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.workbench import Job, Workbench
from bot.engine.llm.base import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    BudgetReached,
    CannotWork,
    Chosen,
    Limits,
    Purpose,
)
from bot.engine.llm.calls import CallKind
from bot.engine.llm.events import AgentEvent, TextDelta
from cards.formats import cut
from cards.words import words_for
from handlers.ports import Answered, BackendFailure, Proposal, Question, Show, TalkState
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.ids import Ids
from storage.marks import Marks
from storage.records.approvals import Approval
from storage.records.people import ChatId, Language
from storage.records.status import ModelChoice
from storage.sessions import Session, SessionRepo

log = logging.getLogger(__name__)

_MOST_CALLS = 12
"""Of the model, for one answer: it may use tools in between."""
_MOST_TRIES = 3
_PAUSE = 1.0
_LONGEST_PAUSE = 15.0
"""Somebody is waiting: a service that sends us away for longer is told about at once."""

_STORE_REST = 5.0
_TITLE = 120
_MOST_NAMED = 5
_UNANSWERED = "[Said just before; your answer was cut short by what follows: “{text}”]\n"

_SYSTEM = """\
You are Shiftboss, the foreman of a team of AI workers, talking with your Boss in a chat. Be
short, concrete and kind. If the Boss asks for work that leaves a result behind (something to
make, change, find out, write or watch), call the tool propose_task once and say nothing more:
the Boss then decides by button. Answer questions and small talk yourself. Files that you make or
change in your workspace, or name in your answer, go to the Boss with it; what the Boss sent lies
in its folder inbox. {language}"""

_LANGUAGE = {
    Language.CHINESE: "Answer in Simplified Chinese unless the Boss writes in another language.",
    Language.ENGLISH: "Answer in English unless the Boss writes in another language.",
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
        auto: Auto | None = None,
        eyes: Eyes | None = None,
        stops: Stops | None = None,
        resets: Resets | None = None,
    ) -> None:
        """`patience` is how long a request for more money stays open; `turns` says what a newer
        message does to an answer, `auto` which model gives it where nobody chose; `eyes` look for
        models that cannot; `resets` is when a conversation is over."""
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
        self._auto = auto or Auto()
        self._eyes = eyes or Eyes(desk=desk, db=db, ids=self._ids)
        self._stops = stops
        self._resets = resets or Resets()
        self._unanswered = Unanswered(Marks(db))

    async def answer(self, question: Question, show: Show, keep: Keep | None = None) -> Answered:
        self._turns.choose(question.chat.id, question.chat.settings.queue)
        try:
            async with self._turns.one(question.chat.id):
                try:
                    return await self._answer(question, show, keep)
                except CannotWork:
                    if not await self._stood_in_for(question):
                        raise
                    return await self._answer(question, show, keep)
        except BudgetReached as error:
            approval = await self._ask_for_more(question, error)
            raise BackendFailure(error.hint, approval=approval) from error
        except BackendError as error:
            raise BackendFailure(error.hint) from error

    async def go_on(self, question: Question, keep: Keep) -> Answered:
        """Satisfies `leave.talks.GoesOn`."""

        async def unseen(_text: str) -> None:
            """It is shown when it is whole."""

        return await self.answer(question, unseen, keep)

    def _wake(self) -> None:
        if self._stops is not None:
            self._stops.wake()

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
        await self._unanswered.forget(chat_id)
        closed = await self._desk.close(_key(chat_id))
        self._wake()
        return closed

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

    async def _answer(self, question: Question, show: Show, keep: Keep | None) -> Answered:
        begun = self._now()
        workspace = self._workspace(question.chat.id)
        sent = await unpacked(self._home, question.files, workspace, mark=self._ids.token())
        persona = await self._bench.persona(question.chat.settings.persona)
        chosen, session = await self._seat(question, persona, pictures=bool(sent.pictures))
        there = await snapshot(workspace)
        proposals: list[Proposal] = []
        shown: list[str] = []

        async def watch(event: AgentEvent) -> None:
            if isinstance(event, TextDelta):
                shown.append(event.text)
                await show("".join(shown))

        def again() -> None:
            shown.clear()
            proposals.clear()

        seen = await self._eyes.look(
            sent.pictures,
            chosen,
            text=question.text,
            account=_account(question),
            language=question.language,
        )
        ask = await self._ask(question, session, persona, proposals)
        ask = replace(ask, prompt=ask.prompt + sent.told + seen.told, pictures=seen.pictures)
        work = asyncio.create_task(
            self._tried(ask, chosen, session, watch, again), name=f"answer in {question.chat.id}"
        )
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
                await self._unanswered.keep(question.chat.id, ask.prompt)
                return Answered(text="".join(shown), interrupted=True)
        text = reply.result.text
        into = f"files/chats/{question.chat.id}/{question.source.replace(':', '-')}"
        files = await made(there, workspace, text, home=self._home, into=into)
        answered = Answered(
            text=text,
            proposal=proposals[0] if proposals else None,
            files=files.files,
            sizes=files.sizes,
            notes=_notes(question.language, chosen, reply, seen, files),
            model=reply.result.model or chosen.backend.name,
            seconds=(self._now() - begun).total_seconds(),
        )
        await self._book(question, reply, answered, keep)
        return answered

    async def _tried(
        self,
        ask: Ask,
        chosen: Chosen,
        session: Session,
        watch: Watch,
        again: Callable[[], None],
    ) -> Reply:
        """Once more where the model could not be reached, but not for long."""
        for pause in _pauses():
            try:
                return await self._desk.ask(ask, chosen, session, watch)
            except BackendUnavailable as error:
                wait = max(pause, error.retry_after or 0.0)
                if wait > _LONGEST_PAUSE:
                    raise
            again()
            ask = replace(ask, permit=afresh(ask.permit))
            await self._sleep(wait)
        return await self._desk.ask(ask, chosen, session, watch)

    async def _book(
        self, question: Question, reply: Reply, answered: Answered, keep: Keep | None
    ) -> None:
        """The turn, what it waits for, and the answer where nobody else posts it: all or none."""
        while True:
            try:
                await self._write(reply, answered, keep)
                break
            except StoreUnavailable as error:
                # It is paid for: a full disk is waited for, and nothing is asked twice.
                log.warning("an answer in %s waits for the store: %s", question.chat.id, error)
                await self._sleep(_STORE_REST)
        await self._unanswered.forget(question.chat.id)
        if reply.answered or reply.result.suspended:
            self._wake()

    async def _write(self, reply: Reply, answered: Answered, keep: Keep | None) -> None:
        kept = await keep(answered) if keep is not None else None
        async with self._db.write() as tx:
            await self._desk.book(tx, reply)
            if self._stops is not None and reply.result.suspended:
                await self._stops.ask(tx, reply.session.id)
            if kept is not None:
                await kept(tx)

    async def _stood_in_for(self, question: Question) -> bool:
        """Whether somebody else answers, now that it is known who cannot. Raises BackendDenied."""
        if question.resumes:
            return False
        persona = await self._bench.persona(question.chat.settings.persona)
        chosen = choose(self._desk, self._auto, question, persona, pictures=bool(question.files))
        return bool(chosen.instead_of)

    async def _seat(
        self, question: Question, persona: Persona, *, pictures: bool
    ) -> tuple[Chosen, Session]:
        """Who answers, in which session. What goes on does so where it stopped, whatever has been
        chosen since."""
        if not question.resumes:
            chosen = choose(self._desk, self._auto, question, persona, pictures=pictures)
            return chosen, await self._session(question.chat.id, chosen, persona.name)
        session = await self._sessions.open(_key(question.chat.id))
        if session is None:
            raise BackendDenied("the conversation has ended")
        return self._desk.choose(session.model, session.backend), session

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

    def _workspace(self, chat_id: ChatId) -> Path:
        return self._home / "workspaces" / f"chat-{chat_id}"

    async def _session(self, chat_id: ChatId, chosen: Chosen, persona: str) -> Session:
        session = await self._sessions.open(_key(chat_id))
        if session is not None and self._resets.ended(session, self._now()):
            await self._desk.close(_key(chat_id))
        return await self._desk.session(_key(chat_id), chosen, persona=persona)

    async def _ask(
        self, question: Question, session: Session, persona: Persona, proposals: list[Proposal]
    ) -> Ask:
        before = await self._unanswered.get(question.chat.id)
        lost = "" if question.resumes or not self._stops else await self._stops.lost(session)
        job = Job(
            account=_account(question),
            session=session,
            language=question.language,
            workspace=self._workspace(question.chat.id),
            persona=persona.name,
            mode=persona.works_in,
            text=question.text,
            turn=question.source,
            skill=question.skill,
        )
        equipment = await self._bench.equip(job)
        proposing = () if question.settle else (propose_task(question, proposals),)
        return Ask(
            purpose=Purpose.CHAT,
            prompt=(f"{question.brief}\n\n" if question.brief else "")
            + (_UNANSWERED.format(text=before) if before else "")
            + equipment.aside
            + question.text,
            system=_SYSTEM.format(language=_LANGUAGE[question.language])
            + "".join(f"\n\n{each}" for each in (equipment.system, lost) if each),
            language=question.language,
            account=job.account,
            workspace=job.workspace,
            facts={"text": question.text},
            mode=job.mode,
            tools=(*proposing, *equipment.tools),
            permit=equipment.permit,
            servers=equipment.servers,
            limits=Limits(turns=_MOST_CALLS),
            goes_on="" if question.resumes else None,
        )


def _account(question: Question) -> Account:
    return Account(person=question.person.id, chat=question.chat.id, turn=question.source)


def _notes(
    language: Language, chosen: Chosen, reply: Reply, seen: Seen, files: Made
) -> tuple[str, ...]:
    words = words_for(language)
    instead, why = chosen.backend.name, words(chosen.why) if chosen.why else ""
    names = ", ".join(files.left_out[:_MOST_NAMED])
    questions = [each for each in reply.result.suspended if each.kind is CallKind.ASK]
    told = (
        words("backend.fell_back", name=chosen.instead_of, instead=instead, why=why)
        if chosen.instead_of
        else "",
        words("tools.asked" if questions else "tools.waits") if reply.result.suspended else "",
        words("talk.cut") if reply.result.cut else "",
        words("talk.unseen") if seen.blind else "",
        words("talk.left_out", names=names, n=len(files.left_out)) if names else "",
    )
    return tuple(note for note in told if note)


def _pauses() -> Iterator[float]:
    """Seconds to wait after each failed try but the last."""
    return (_PAUSE * 2**n for n in range(_MOST_TRIES - 1))


def _key(chat_id: ChatId) -> str:
    return f"chat:{chat_id}"
