"""The workbench: each kind of tool, leave and briefing that a worker gets."""

from __future__ import annotations

from collections.abc import Sequence

from bot.engine.agent.personas.library import PersonaLibrary
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.tools.edit import edit
from bot.engine.agent.tools.grep import grep
from bot.engine.agent.tools.list import list_files
from bot.engine.agent.tools.read import read
from bot.engine.agent.tools.write import write
from bot.engine.agent.workbench import Job, Workbench
from bot.engine.llm.base import Tool


def build_bench(*, personas: PersonaLibrary) -> Workbench:
    return Workbench(personas=personas, makers=(_files,))


def _files(job: Job, _persona: Persona) -> Sequence[Tool]:
    return tuple(make(job.workspace) for make in (read, write, edit, list_files, grep))
