"""The workbench: each kind of tool, leave and briefing that a worker gets."""

from __future__ import annotations

from collections.abc import Sequence

from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.tools.list_files import list_files
from bot.engine.agent.tools.read_file import read_file
from bot.engine.agent.tools.write_file import write_file
from bot.engine.agent.workbench import Job, Workbench
from bot.engine.llm.base import Tool


def build_bench() -> Workbench:
    return Workbench(makers=(_files,))


def _files(job: Job, _persona: Persona) -> Sequence[Tool]:
    if job.is_talk:
        return ()
    return read_file(job.workspace), write_file(job.workspace), list_files(job.workspace)
