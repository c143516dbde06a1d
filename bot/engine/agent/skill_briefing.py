"""What a worker is told of skills: their names and what they are for, and the tool to load one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeAlias

from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.tools.skill_load import skill_load
from bot.engine.agent.workbench import Briefing, Job, ToolMaker, may_use
from bot.engine.llm.base import Mode, Tool
from bot.engine.skills.framing import catalogue
from bot.engine.skills.library import Library

ProjectOf: TypeAlias = Callable[[Job], Awaitable[str]]
"""The folder whose own skills a job may use; empty for none."""


def skill_briefing(library: Library, project_of: ProjectOf) -> Briefing:
    """Helpers of helpers are told what they need by who sends them: not this."""

    async def brief(job: Job, persona: Persona) -> str:
        if job.depth or not may_use(persona, "skill_load"):
            return ""
        shelf = await library.shelf(await project_of(job))
        return catalogue([each for each in shelf.usable if _sees(persona, each.skill.name)])

    return brief


def skill_tools(library: Library, project_of: ProjectOf) -> ToolMaker:
    def make(job: Job, persona: Persona) -> Sequence[Tool]:
        return (
            skill_load(
                library,
                job.workspace,
                project=partial(project_of, job),
                allowed=persona.skills,
                copies=job.mode is Mode.EXECUTE,
            ),
        )

    return make


def _sees(persona: Persona, skill: str) -> bool:
    return not persona.skills or any(fnmatchcase(skill, pattern) for pattern in persona.skills)
