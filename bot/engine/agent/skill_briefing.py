"""What a worker is told of skills: their names and what they are for, and the tool to load one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeAlias

from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.skill_copies import PLACE, copy_files
from bot.engine.agent.tools.skill_load import skill_load
from bot.engine.agent.workbench import Briefing, Job, ToolMaker, may_use
from bot.engine.llm.base import Mode, Tool
from bot.engine.llm.workspace import PathRefused
from bot.engine.skills.framing import catalogue
from bot.engine.skills.library import Library
from storage.records.workers.skills import Listed, SkillRefused

ProjectOf: TypeAlias = Callable[[Job], Awaitable[str]]
"""The folder whose own skills a job may use; empty for none."""


def skill_briefing(
    library: Library, project_of: ProjectOf, brings_tools: Callable[[str], bool] = lambda _: False
) -> Briefing:
    """Helpers are told what they need by who sends them: not this. `brings_tools` says of a
    backend that it has its own and none of ours: there the skills are files to be read."""

    async def brief(job: Job, persona: Persona) -> str:
        if job.depth or not may_use(persona, "skill_load"):
            return ""
        project = await project_of(job)
        shelf = await library.shelf(project)
        seen = [each for each in shelf.usable if _sees(persona, each.skill.name)]
        if not brings_tools(job.session.backend):
            return catalogue(seen)
        if job.mode is not Mode.EXECUTE:
            return ""
        return catalogue(await _copied(library, job, seen, project), place=PLACE)

    return brief


async def _copied(
    library: Library, job: Job, seen: Sequence[Listed], project: str
) -> Sequence[Listed]:
    """Those of them that lie in the workspace now, exactly as they were let in."""
    there: list[Listed] = []
    for each in seen:
        if each.skill.by_model:
            with suppress(SkillRefused, PathRefused, OSError):
                skill, files = await library.open(each.skill.name, project=project)
                await asyncio.to_thread(copy_files, job.workspace, skill.name, files)
                there.append(each)
    return there


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
