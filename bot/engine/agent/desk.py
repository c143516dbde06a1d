"""One call to a model: choose who works, keep the session, count the cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from bot.engine.llm.base import (
    AgentEvent,
    BackendError,
    Chosen,
    Limits,
    Picture,
    Purpose,
    Run,
    RunRequest,
    RunResult,
    Tool,
    Usage,
)
from storage.db import Database, Transaction
from storage.records.people import ChatId, Language, PersonId
from storage.records.tasks import TaskId
from storage.sessions import Session, SessionRepo
from storage.usage import Bill, UsageRepo

log = logging.getLogger(__name__)

Watch = Callable[[AgentEvent], Awaitable[None]]


class Backends(Protocol):
    def choose(self, model: str, backend: str) -> Chosen:
        """What these names mean; empty ones mean the default. Raises BackendDenied."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom a call is charged to."""

    person: PersonId | None
    chat: ChatId | None
    task: TaskId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is wanted of the model. `facts` are what the prompt was made from."""

    purpose: Purpose
    prompt: str
    system: str
    language: Language
    account: Account
    facts: Mapping[str, Any]
    workspace: Path | None = None
    pictures: tuple[Picture, ...] = ()
    tools: tuple[Tool, ...] = ()
    result: type[BaseModel] | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of it. Nothing of a reply is kept until it is booked."""

    result: RunResult
    session: Session
    bill: Bill


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
    ) -> None:
        self._db = db
        self._sessions = sessions
        self._usage = usage
        self._backends = backends
        self._now = now
        self._new_id = new_id

    def choose(self, model: str, backend: str) -> Chosen:
        return self._backends.choose(model, backend)

    async def session(self, key: str, chosen: Chosen) -> Session:
        """The session under way, or a new one: a backend cannot go on with another's."""
        now = self._now()
        async with self._db.write() as tx:
            session = await self._sessions.open(key, tx=tx)
            if session is not None and session.backend == chosen.backend.name:
                return session
            return await self._sessions.begin(
                tx,
                id=self._new_id(),
                key=key,
                backend=chosen.backend.name,
                model=chosen.model,
                now=now,
            )

    async def ask(
        self, ask: Ask, chosen: Chosen, session: Session, watch: Watch | None = None
    ) -> Reply:
        """Run it to the end. Raises BackendError; what was spent is counted all the same, also
        where it is cancelled."""
        request = RunRequest(
            purpose=ask.purpose,
            prompt=ask.prompt,
            system=ask.system,
            model=chosen.model,
            language=ask.language,
            workspace=ask.workspace,
            pictures=ask.pictures,
            history=await self._sessions.history(session.id),
            tools=ask.tools,
            result=ask.result,
            limits=ask.limits,
            facts=ask.facts,
        )
        run: Run | None = None
        try:
            async with chosen.backend.run(request) as run:
                async for event in run.events:
                    if watch is not None:
                        await watch(event)
                result = run.result
        except BackendError as error:
            log.warning("%s failed: %s", chosen.backend.name, error)
            await self._charge_failure(ask, chosen, error.usage)
            raise
        except asyncio.CancelledError:
            if run is not None:
                await self._charge_failure(ask, chosen, run.spent)
            raise
        bill = self._bill(ask, chosen, result.model, result.usage)
        return Reply(result=result, session=session, bill=bill)

    async def book(self, tx: Transaction, reply: Reply) -> None:
        """Keep the turn and its cost, together with whatever else `tx` makes true."""
        await self._usage.add(tx, reply.bill)
        await self._sessions.extend(
            tx,
            reply.session.id,
            reply.result.new_history,
            tokens=reply.result.usage.input_tokens + reply.result.usage.output_tokens,
            now=reply.bill.at,
        )

    async def _charge_failure(self, ask: Ask, chosen: Chosen, usage: Usage) -> None:
        if usage.requests:
            async with self._db.write() as tx:
                await self._usage.add(tx, self._bill(ask, chosen, chosen.model, usage))

    def _bill(self, ask: Ask, chosen: Chosen, model: str, usage: Usage) -> Bill:
        return Bill(
            at=self._now(),
            purpose=ask.purpose,
            backend=chosen.backend.name,
            model=model,
            person_id=ask.account.person,
            chat_id=ask.account.chat,
            task_id=ask.account.task,
            requests=usage.requests,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost_micros=_micros(usage.cost),
        )


def _micros(cost: Decimal | None) -> int | None:
    return None if cost is None else int(cost * 1_000_000)
