"""The workbench: each kind of tool, leave and briefing that a worker gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from bot.engine.agent.context.briefing import Context
from bot.engine.agent.personas.library import PersonaLibrary
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.policy.closed import Closed
from bot.engine.agent.remembering.briefing import Remembering
from bot.engine.agent.skill_briefing import skill_briefing, skill_tools
from bot.engine.agent.tools.ask_user import ask_user
from bot.engine.agent.tools.edit import edit
from bot.engine.agent.tools.exec import Shell, exec_command
from bot.engine.agent.tools.grep import grep
from bot.engine.agent.tools.list import list_files
from bot.engine.agent.tools.read import read
from bot.engine.agent.tools.web_fetch import web_fetch
from bot.engine.agent.tools.write import write
from bot.engine.agent.web.fetching import Fetcher
from bot.engine.agent.workbench import Briefing, Job, Permits, ToolMaker, Workbench
from bot.engine.llm.base import Tool
from bot.engine.skills.library import Library
from storage.records.people import Chat, ChatId


def build_bench(
    *,
    personas: PersonaLibrary,
    context: Context,
    library: Library,
    chat_of: Callable[[ChatId], Awaitable[Chat]],
    permits: Permits,
    fetcher: Fetcher,
    shell: Shell,
    closed: Closed,
    mask: Callable[[str], str],
    brings_tools: Callable[[str], bool],
    memories: Remembering,
    look_back: ToolMaker,
    carried: Briefing,
    more: Sequence[ToolMaker] = (),
) -> Workbench:
    async def project_of(job: Job) -> str:
        """A task works in its project; a chat has one or none."""
        if not job.is_talk:
            return str(job.workspace)
        return (await chat_of(job.account.chat)).settings.project if job.account.chat else ""

    def files(job: Job, _persona: Persona) -> Sequence[Tool]:
        at = job.workspace
        return read(at, closed), write(at), edit(at), list_files(at), grep(at, closed)

    def commands(job: Job, _persona: Persona) -> Sequence[Tool]:
        return () if job.is_talk else (exec_command(job.workspace, shell, job.mode),)

    def web(job: Job, _persona: Persona) -> Sequence[Tool]:
        return (web_fetch(job.workspace, fetcher),)

    return Workbench(
        personas=personas,
        makers=(
            files,
            web,
            commands,
            _asking,
            look_back,
            *more,
            skill_tools(library, project_of),
        ),
        briefings=(
            context.boss,
            skill_briefing(library, project_of, brings_tools),
            context.notes,
            context.brief,
            carried,
            # It changes most often: what stands before it is cached longer.
            memories.standing,
        ),
        asides=(memories.aside,),
        permits=permits,
        mask=mask,
    )


def _asking(job: Job, _persona: Persona) -> Sequence[Tool]:
    """Helpers work unseen: they have nobody to ask."""
    return () if job.depth else (ask_user(),)
