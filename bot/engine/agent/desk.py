"""One call to a model: choose who works, keep the session, count the cost."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeAlias

from bot.engine.agent.budget import Budget, Purse, in_micros
from bot.engine.agent.context.asked import Ask, Reply
from bot.engine.agent.context.history import SHORTENED, History, beside, length
from bot.engine.agent.context.windows import Room
from bot.engine.agent.leave.pending import Pending
from bot.engine.agent.mcp.servers import McpServers, Plugged
from bot.engine.llm.base import (
    MAX_ANSWER,
    BackendError,
    BudgetReached,
    CapHit,
    Chosen,
    CutShort,
    Run,
    RunRequest,
    TooLong,
    Usage,
)
from bot.engine.llm.events import AgentEvent, Noted
from bot.engine.observe.recorder import CallStart, Ending, Recorder
from storage.db import Database, Transaction
from storage.records.workers.spans import ModelCall
from storage.sessions import Session, SessionRepo
from storage.usage import Bill, UsageRepo

__all__ = ["Ask", "Desk", "Keeper", "Reply", "Watch"]

log = logging.getLogger(__name__)

_MOST_CUTS = 4
"""How often one thing goes on that has become too long under way."""

Watch = Callable[[AgentEvent], Awaitable[None]]


class Backends(Protocol):
    def choose(self, model: str, backend: str) -> Chosen:
        """What these names mean; empty ones mean the default. Raises BackendDenied."""
        ...


Keeper: TypeAlias = Callable[[Transaction, Reply], Awaitable[None]]


class Desk:
    def __init__(
        self,
        *,
        db: Database,
        sessions: SessionRepo,
        usage: UsageRepo,
        backends: Backends,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        budget: Budget | None = None,
        pending: Pending | None = None,
        servers: McpServers | None = None,
        spans: Recorder | None = None,
        keepers: Sequence[Keeper] = (),
        history: History | None = None,
    ) -> None:
        """Without a `budget` there are no caps. `pending` knows the calls at which sessions
        stopped: without it none may stop. `spans` keeps what tasks and talk ask; `keepers` write
        with each answer what else is to be known of it."""
        self._db = db
        self._sessions = sessions
        self._usage = usage
        self._backends = backends
        self._now = now
        self._new_id = new_id
        self._budget = budget
        self._pending = pending
        self._servers = servers
        self._spans = spans
        self._keepers = tuple(keepers)
        self._history = history or History(sessions)

    def choose(self, model: str, backend: str) -> Chosen:
        return self._backends.choose(model, backend)

    async def session(
        self, key: str, chosen: Chosen, *, most_tokens: int | None = None, persona: str = ""
    ) -> Session:
        """The session under way, or a new one: a backend cannot go on with another's, nor a CLI
        in another persona's home, and one that has grown beyond `most_tokens` costs more than it
        helps."""
        now = self._now()
        async with self._db.write() as tx:
            session = await self._sessions.open(key, tx=tx)
            if session is not None and _goes_on(session, chosen, most_tokens, persona):
                return session
            if session is not None and self._pending is not None:
                await self._pending.drop(tx, session.id)
            return await self._sessions.begin(
                tx,
                id=self._new_id(),
                key=key,
                backend=chosen.backend.name,
                model=chosen.model,
                now=now,
                persona=persona,
            )

    async def close(self, key: str) -> bool:
        """End the session under way for this key; nobody has to decide any more about what it
        waited for. False if there was none."""
        async with self._db.write() as tx:
            session = await self._sessions.open(key, tx=tx)
            if session is not None and self._pending is not None:
                await self._pending.drop(tx, session.id)
            return await self._sessions.close(tx, key, now=self._now())

    async def ask(
        self, ask: Ask, chosen: Chosen, session: Session, watch: Watch | None = None
    ) -> Reply:
        """Run it to the end. Raises BackendError; what was spent is counted all the same, also
        where it is cancelled. BudgetReached leaves in the session what was done until then. A
        session that stopped at calls of tools goes on from what became of them; one that has
        become too long for its model is told shorter, and goes on too."""
        if watch is not None and chosen.instead_of:
            facts = {"name": chosen.instead_of, "instead": chosen.backend.name, "why": chosen.why}
            await watch(Noted(key="backend.fell_back", facts=facts))
        tries = 0
        while True:
            try:
                return await self._asked(ask, chosen, session, watch)
            except TooLong as error:
                tries += 1
                if tries > (_MOST_CUTS if error.new_history else 1):
                    raise
                if error.new_history:
                    told = (
                        ask.prompt if ask.prompt.startswith(SHORTENED) else SHORTENED + ask.prompt
                    )
                    ask = replace(ask, prompt=told, pictures=(), answers={}, goes_on=None)

    async def _asked(
        self, ask: Ask, chosen: Chosen, session: Session, watch: Watch | None
    ) -> Reply:
        ask, session = await self._as_it_is(ask, chosen, session)
        call = _Call(
            ask=ask,
            chosen=chosen,
            session=session,
            purse=self._purse(ask, chosen),
            on_external=partial(self._name_outside, session.id),
        )
        call = await self._begun(call)
        run: Run | None = None
        sent = 0
        try:
            async with self._plugged(ask, chosen, watch) as brought:
                request, sent = await self._request(call, brought)
                async with chosen.backend.run(request) as run:
                    async for event in run.events:
                        if watch is not None:
                            await watch(event)
                    result = run.result
        except BackendError as error:
            log.warning("%s failed: %s", chosen.backend.name, error)
            added = (
                error.new_history if isinstance(error, BudgetReached | CutShort | TooLong) else ()
            )
            if isinstance(error, TooLong):
                seat = (chosen.backend.name, chosen.model)
                await self._history.too_long(error, session, seat, sent=sent)
            await self._charge_failure(call, error.usage, error, added)
            if isinstance(error, CutShort) and (hit := await call.cut_by()):
                raise BudgetReached(hit, usage=error.usage) from None
            raise
        except BaseException as error:
            # Cancelled, or a tool of ours is broken: paid for all the same.
            await self._charge_failure(call, Usage() if run is None else run.spent, error)
            raise
        bill = call.bill(result.model, result.usage, self._now())
        if call.purse is not None:
            call.purse.end(result.usage, bill.at)
        return Reply(
            result=result,
            session=session,
            bill=bill,
            purse=call.purse,
            answered=bool(ask.answers),
            span=call.span,
        )

    async def book(self, tx: Transaction, reply: Reply) -> None:
        """Keep the turn and its cost, together with whatever else `tx` makes true."""
        result = reply.result
        used = result.usage.input_tokens + result.usage.output_tokens
        billed = await self._usage.add(tx, reply.bill)
        if reply.purse is not None:
            reply.purse.booked = billed
        if self._spans is not None and reply.span is not None:
            await self._spans.end(tx, reply.span, _went_well(reply))
        await self._sessions.extend(
            tx,
            reply.session.id,
            result.new_history,
            tokens=result.context or used,
            now=reply.bill.at,
        )
        if self._pending is not None and (reply.answered or result.suspended):
            await self._pending.settle(tx, reply.session.id, result.suspended)
        for keep in self._keepers:
            await keep(tx, reply)

    @asynccontextmanager
    async def _plugged(
        self, ask: Ask, chosen: Chosen, watch: Watch | None
    ) -> AsyncGenerator[Plugged, None]:
        """What its MCP servers bring. A coding CLI starts them by itself, with one of ours."""
        if self._servers is None:
            yield Plugged(servers=ask.servers)
            return
        if not chosen.backend.caps.tools:
            async with self._servers.lent(ask.servers, ask.tools) as brought:
                await _tell(watch, brought)
                yield brought
            return
        async with self._servers.plugged(ask.servers, ask.workspace, ask.mode) as brought:
            await _tell(watch, brought)
            yield replace(brought, servers=ask.servers)

    async def _as_it_is(self, ask: Ask, chosen: Chosen, session: Session) -> tuple[Ask, Session]:
        """With what has become of the session since the caller read it."""
        if not chosen.backend.caps.tools:
            # A CLI's run has named it.
            named = await self._sessions.name_of(session.id)
            session = replace(session, external_id=named)
        if self._pending is not None:
            answers = {**await self._pending.answers(session.id), **ask.answers}
            goes_on = ask.goes_on if answers else None
            prompt = ask.prompt if goes_on is None else goes_on
            ask = replace(ask, answers=answers, prompt=prompt)
        return ask, session

    async def _request(self, call: _Call, brought: Plugged) -> tuple[RunRequest, int]:
        """What fits into the model, and about how many tokens that is."""
        ask, backend, id_ = call.ask, call.chosen.backend, call.session.id
        room, more = Room(), 0
        if backend.caps.tools:
            more = beside((ask.system, ask.prompt), (*ask.tools, *brought.tools))
            room = await self._history.room(call.session, backend.name, call.chosen.model, more)
        told = await self._history.told(id_, open_calls=bool(ask.answers), most=room.session)
        request = replace(call.request(told, brought), answer_tokens=room.answer)
        return request, more + length(told)

    async def _begun(self, call: _Call) -> _Call:
        start = call.start()
        if self._spans is None or start is None:
            return call
        return replace(call, span=await self._spans.begin(start))

    async def _name_outside(self, session_id: str, external_id: str) -> None:
        async with self._db.write() as tx:
            await self._sessions.name_outside(tx, session_id, external_id)

    async def _charge_failure(
        self, call: _Call, usage: Usage, error: BaseException, added: tuple[Any, ...] = ()
    ) -> None:
        bill = call.bill("", usage, self._now())
        if call.purse is not None:
            call.purse.end(usage, bill.at)
        ending = Ending.badly(bill, error, left=isinstance(error, BudgetReached))
        if usage.requests:
            async with self._db.write() as tx:
                await self._usage.add(tx, bill)
                if self._spans is not None and call.span is not None:
                    await self._spans.end(tx, call.span, ending)
                if added:
                    tokens = usage.input_tokens + usage.output_tokens
                    await self._sessions.extend(
                        tx, call.session.id, added, tokens=tokens, now=bill.at
                    )
                    if self._pending is not None:
                        await self._pending.settle(tx, call.session.id)
        elif self._spans is not None and call.span is not None:
            await self._spans.end_alone(call.span, ending)
        if call.purse is not None:
            call.purse.close()

    def _purse(self, ask: Ask, chosen: Chosen) -> Purse | None:
        if self._budget is None:
            return None
        most = min(ask.limits.output_tokens, MAX_ANSWER)
        return self._budget.purse(ask.account.subjects, chosen.backend.name, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """What is asked of whom, for how much."""

    ask: Ask
    chosen: Chosen
    session: Session
    purse: Purse | None
    on_external: Callable[[str], Awaitable[None]]
    span: ModelCall | None = None

    def start(self) -> CallStart | None:
        """What is known of it as it begins; None where it is part of no trace."""
        account, chosen = self.ask.account, self.chosen
        if account.task is None and not account.turn and not self.ask.parent:
            return None
        return CallStart(
            task_id=account.task,
            chat_id=account.chat,
            turn=account.turn,
            parent=self.ask.parent,
            purpose=self.ask.purpose,
            backend=chosen.backend.name,
            model=chosen.model,
            session_id=self.session.id,
            instead_of=chosen.instead_of,
        )

    def request(self, history: Sequence[Any], brought: Plugged) -> RunRequest:
        ask = self.ask
        return RunRequest(
            purpose=ask.purpose,
            prompt=ask.prompt,
            system=ask.system,
            model=self.chosen.model,
            language=ask.language,
            workspace=ask.workspace,
            pictures=ask.pictures,
            history=history,
            tools=(*ask.tools, *brought.tools),
            result=ask.result,
            limits=ask.limits,
            facts=ask.facts,
            gate=self.purse,
            mode=ask.mode,
            permit=ask.permit,
            answers=ask.answers,
            servers=brought.servers,
            persona=self.session.persona,
            external_id=self.session.external_id,
            on_external=self.on_external,
        )

    async def cut_by(self) -> CapHit | None:
        return await self.purse.cut_by() if self.purse else None

    def bill(self, model: str, usage: Usage, at: datetime) -> Bill:
        """`model` as the service called it, which a call that failed does not tell."""
        account = self.ask.account
        asked = self.chosen.model or ("" if self.purse is None else self.purse.model)
        cost = usage.cost if self.purse is None else self.purse.cost(usage, asked or model)
        seat = (self.chosen.backend.name, model or asked)
        purpose = self.ask.purpose
        return account.bill(usage, in_micros(cost), at=at, purpose=purpose, seat=seat)


async def _tell(watch: Watch | None, brought: Plugged) -> None:
    if watch is not None:
        for note in brought.notes:
            await watch(note)


def _goes_on(session: Session, chosen: Chosen, most_tokens: int | None, persona: str) -> bool:
    fits = most_tokens is None or session.tokens <= most_tokens
    # The model APIs keep nothing outside: there a change of persona is a change of tone.
    at_home = not session.external_id or session.persona == persona
    return fits and at_home and session.backend == chosen.backend.name


def _went_well(reply: Reply) -> Ending:
    result = reply.result
    return Ending.well(reply.bill, stopped=bool(result.suspended), cut=result.cut)
