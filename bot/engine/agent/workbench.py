"""What a worker finds at its place: tools, leave to use them, and what it is told first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol, TypeAlias

from bot.engine.agent.account import Account
from bot.engine.agent.outgoing.outputs import guarded
from bot.engine.agent.personas.builtin import BUILT_IN, PRAGMATIST
from bot.engine.agent.personas.persona import Persona
from bot.engine.llm.base import McpServer, Mode, Tool
from bot.engine.llm.calls import Permit
from storage.records.people import Language
from storage.sessions import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is about to do. `path` is the step of the account's task, empty in a chat;
    `depth` is 0 for a main worker, and grows with each helper sent off by another."""

    account: Account
    session: Session
    language: Language
    workspace: Path
    persona: str = ""
    path: str = ""
    mode: Mode = Mode.EXECUTE
    depth: int = 0
    text: str = ""
    """What was asked for, to choose by what belongs to it."""
    skill: str = ""
    """The one that it is done by, where somebody asked for one."""
    turn: str = ""
    """Of talk: what names the message that is answered, also when it is answered anew."""

    @property
    def is_talk(self) -> bool:
        return self.account.task is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """Ready for `RunRequest`. `system` is what stands before the caller's own system text: the
    same from turn to turn, so that it is cached. `aside` stands before what is asked, with a blank
    line behind it where there is any: what belongs to this turn alone."""

    persona: Persona
    tools: tuple[Tool, ...] = ()
    system: str = ""
    permit: Permit | None = None
    servers: tuple[McpServer, ...] = ()
    aside: str = ""


ToolMaker: TypeAlias = Callable[[Job, Persona], Sequence[Tool]]
"""The tools of one kind for this job; none where they do not belong."""

Briefing: TypeAlias = Callable[[Job, Persona], Awaitable[str]]
"""One block of what a worker is told first; empty for nothing."""


class Personas(Protocol):
    async def get(self, name: str) -> Persona:
        """As it is now: files may have changed. Unknown names and none mean the default."""
        ...

    async def known(self) -> Mapping[str, Persona]:
        """Everybody there is, by name, the default first."""
        ...


class Permits(Protocol):
    def permit(self, job: Job, persona: Persona) -> Permit:
        """Who decides about this job's calls, and keeps the audit."""
        ...


class Workbench:
    """Put together once, in the order in which things are to appear. What any tool says passes
    `mask`, which takes secrets out of it, and is cut to a readable length."""

    def __init__(
        self,
        *,
        personas: Personas | None = None,
        makers: Sequence[ToolMaker] = (),
        briefings: Sequence[Briefing] = (),
        permits: Permits | None = None,
        mask: Callable[[str], str] = str,
        asides: Sequence[Briefing] = (),
    ) -> None:
        self._personas = personas
        self._makers = tuple(makers)
        self._briefings = tuple(briefings)
        self._permits = permits
        self._mask = mask
        self._asides = tuple(asides)

    async def persona(self, name: str) -> Persona:
        return PRAGMATIST if self._personas is None else await self._personas.get(name)

    async def known(self) -> Mapping[str, Persona]:
        return BUILT_IN if self._personas is None else await self._personas.known()

    async def equip(self, job: Job) -> Equipment:
        persona = await self.persona(job.persona)
        made = [tool for make in self._makers for tool in make(job, persona)]
        told = [await brief(job, persona) for brief in self._briefings]
        aside = [await brief(job, persona) for brief in self._asides]
        return Equipment(
            persona=persona,
            tools=tuple(
                guarded(tool, job.workspace, self._mask)
                for tool in made
                if may_use(persona, tool.name)
            ),
            system="\n\n".join(block for block in (persona.charter, *told) if block),
            permit=self._permits.permit(job, persona) if self._permits is not None else None,
            servers=persona.servers,
            aside="".join(f"{block}\n\n" for block in aside if block),
        )


def may_use(persona: Persona, tool: str) -> bool:
    """By the persona's globs: denied wins, and an empty list of allowed ones is all."""
    if any(fnmatchcase(tool, pattern) for pattern in persona.denied):
        return False
    return not persona.tools or any(fnmatchcase(tool, pattern) for pattern in persona.tools)
