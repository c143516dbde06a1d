"""Who works on one task: a worker for each persona that its steps name, and their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bot.engine.agent.desk import Desk
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.workbench import Workbench
from bot.engine.llm.base import Chosen
from storage.sessions import Session

_NONE = -1


class Choice(Protocol):
    """What people chose; empty for nothing."""

    @property
    def model(self) -> str: ...

    @property
    def backend(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Somebody at work: with which model, and in which session."""

    persona: Persona
    chosen: Chosen
    session: Session


@dataclass(frozen=True, slots=True, kw_only=True)
class _Post:
    persona: Persona
    chosen: Chosen
    key: str


def purposes(known: Mapping[str, Persona]) -> Mapping[str, str]:
    """Whom a step may name, and what for."""
    return {name: each.purpose for name, each in known.items() if each.charter}


class Team:
    """`choices` come before a persona's own choice of backend and model, in that order. Workers on
    the same model API share one session, each with a system text of its own; a coding CLI keeps
    its sessions in its persona's home, so there everybody has one."""

    _first: _Post
    _leader: Worker

    def __init__(
        self,
        desk: Desk,
        bench: Workbench,
        *,
        key: str,
        choices: Sequence[Choice],
        most_tokens: int,
    ) -> None:
        """A session that is longer than `most_tokens` is not taken up again."""
        self._desk = desk
        self._bench = bench
        self._key = key
        self._choices = tuple(choices)
        self._most_tokens = most_tokens
        self._sessions: dict[str, Session] = {}
        self._left: set[str] = set()
        self._opening = asyncio.Lock()

    async def lead(self, name: str) -> Worker:
        """Who plans, and does the steps that name nobody. To be called first. Raises
        BackendDenied."""
        persona = await self._bench.persona(name)
        self._first = _Post(persona=persona, chosen=self._chosen(persona), key=self._key)
        return await self._at(self._first)

    @property
    def leader(self) -> Worker:
        """The lead as it is now: somebody may stand in, and sessions grow too long."""
        return self._leader

    async def member(self, name: str, lane: str = "") -> Worker:
        """Who does a step that names somebody; a name that nobody has means the lead. Steps of
        another lane, which may run at the same time, have another session. Raises
        BackendDenied."""
        persona = (await self._bench.known()).get(name.casefold()) if name else None
        if persona is None or persona.name == self._first.persona.name:
            return await self._at(replace(self._first, key=_in_lane(self._first.key, lane)))
        chosen = self._chosen(persona)
        first = self._first.chosen.backend
        shares = chosen.backend.name == first.name and first.caps.tools
        key = _in_lane(self._key if shares else f"{self._key}:{persona.name}", lane)
        return await self._at(_Post(persona=persona, chosen=chosen, key=key))

    async def instead(self, of: Worker, name: str, lane: str = "") -> Worker | None:
        """Who stands in for one that turned out not to be able to work; None for nobody. Raises
        BackendDenied."""
        self._first = replace(self._first, chosen=self._chosen(self._first.persona))
        await self._at(self._first)
        worker = await self.member(name, lane)
        return None if worker.chosen.backend.name == of.chosen.backend.name else worker

    def leave(self, session: Session) -> None:
        """It has grown too long: whoever shared it begins a new one."""
        for key in [key for key, each in self._sessions.items() if each.id == session.id]:
            del self._sessions[key]
            self._left.add(key)

    async def _at(self, post: _Post) -> Worker:
        async with self._opening:
            # Steps that begin at once may want the same one.
            known = self._sessions.get(post.key)
            if known is None or known.backend != post.chosen.backend.name:
                most = _NONE if post.key in self._left else self._most_tokens
                self._sessions[post.key] = await self._open(post, most)
                self._left.discard(post.key)
        session = self._sessions[post.key]
        worker = Worker(persona=post.persona, chosen=post.chosen, session=session)
        if post == self._first:
            self._leader = worker
        return worker

    async def _open(self, post: _Post, most_tokens: int) -> Session:
        return await self._desk.session(
            post.key, post.chosen, most_tokens=most_tokens, persona=post.persona.name
        )

    def _chosen(self, persona: Persona) -> Chosen:
        for choice in (*self._choices, persona):
            if choice.model or choice.backend:
                return self._desk.choose(choice.model, choice.backend)
        return self._desk.choose("", "")


def _in_lane(key: str, lane: str) -> str:
    return f"{key}/{lane}" if lane else key
