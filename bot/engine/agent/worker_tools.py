"""Chooses the tools of a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bot.engine.agent.subagents.spawning import SubagentSpawner, sessions_spawn_tool
from bot.engine.agent.worker_context import ToolFactory
from bot.engine.llm.backend import WorkerMode
from bot.engine.llm.tool_calls import AgentTool
from bot.engine.memory.ports import MemorySource
from bot.engine.permissions.rules import ProtectedFiles
from bot.engine.tools.ask_user import ask_user_tool
from bot.engine.tools.file_editing import edit_tool, write_tool
from bot.engine.tools.file_reading import grep_tool, list_tool, read_tool
from bot.engine.tools.memory_lookup import memory_get_tool, memory_search_tool
from bot.engine.tools.shell_exec import CommandShell, exec_tool
from bot.engine.tools.web_fetch import web_fetch_tool
from bot.engine.web.fetcher import WebFetcher
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import WorkerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTools:
    """A `ToolFactory` of all tools. Without `spawner` no worker may start subagents."""

    protected_paths: ProtectedFiles
    fetcher: WebFetcher
    shell: CommandShell
    spawner: SubagentSpawner | None
    memories: Callable[[WorkerSpec, Persona], MemorySource]
    history_tools: ToolFactory
    skill_tools: ToolFactory

    def __call__(self, job: WorkerSpec, persona: Persona) -> Sequence[AgentTool]:
        at, memories = job.workspace, self.memories(job, persona)
        return (
            read_tool(at, self.protected_paths),
            write_tool(at),
            edit_tool(at),
            list_tool(at),
            grep_tool(at, self.protected_paths),
            web_fetch_tool(at, self.fetcher),
            *([] if job.is_chat else [exec_tool(at, self.shell, job.mode)]),
            # Subagents have nobody to ask.
            *([] if job.depth else [ask_user_tool()]),
            *self.history_tools(job, persona),
            memory_search_tool(memories),
            memory_get_tool(memories),
            *self._spawn_tools(job),
            *self.skill_tools(job, persona),
        )

    def _spawn_tools(self, job: WorkerSpec) -> Sequence[AgentTool]:
        """Only workers that execute may start subagents."""
        if self.spawner is None or job.mode is not WorkerMode.EXECUTE:
            return ()
        return (sessions_spawn_tool(partial(self.spawner.spawn, job)),)
