"""The tools of a worker, by its persona and job: which of them it gets, and what they reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial

from bot.engine.agent.memory_hooks import MemoryBriefing, WorkerMemoryLookup
from bot.engine.agent.subagents.spawning import SubagentSpawner, sessions_spawn_tool
from bot.engine.agent.worker_context import ToolFactory
from bot.engine.llm.backend import WorkerMode
from bot.engine.llm.tool_calls import AgentTool
from bot.engine.memory.ports import MemorySource, NoMemories
from bot.engine.memory.retriever import MemoryRetriever
from bot.engine.memory.worker_proposals import ProposingTask, WorkerProposals
from bot.engine.permissions.rules import ReadProtectedFiles
from bot.engine.tools.ask_user import ask_user_tool
from bot.engine.tools.file_editing import edit_tool, write_tool
from bot.engine.tools.file_reading import grep_tool, list_tool, read_tool
from bot.engine.tools.linked_documents import DocumentReader, feishu_read_tool
from bot.engine.tools.memory import (
    memory_get_tool,
    memory_note_tool,
    memory_proposal_tools,
    memory_search_tool,
)
from bot.engine.tools.shell_exec import CommandShell, exec_tool
from bot.engine.tools.web import web_fetch_tool, web_search_tool
from bot.engine.web import WebFetcher, WebSearch
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import CostAccount, WorkerSpec
from storage.memory.entries import MemoryEntryRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTools:
    """A `ToolFactory` of all tools. Without `spawner` no worker may start subagents, without
    `search` none may search the web. `documents` returns the reader of linked documents, None while
    no platform has any. `task_logs` returns the logs of tasks that work for this
    account may read."""

    protected_paths: ReadProtectedFiles
    fetcher: WebFetcher
    search: WebSearch | None
    documents: Callable[[], DocumentReader | None]
    shell: CommandShell
    spawner: SubagentSpawner | None
    memories: MemoryBriefing
    retriever: MemoryRetriever
    entries: MemoryEntryRepo
    task_logs: Callable[[CostAccount], MemorySource]
    proposals: WorkerProposals
    zone: tzinfo
    history_tools: ToolFactory
    skill_tools: ToolFactory

    def __call__(self, job: WorkerSpec, persona: Persona) -> Sequence[AgentTool]:
        at, memories = job.workspace, self._memory_source(job, persona)
        return (
            read_tool(at, self.protected_paths),
            replace(write_tool(at), lock=self.shell.lock_for(at)),
            replace(edit_tool(at), lock=self.shell.lock_for(at)),
            list_tool(at),
            grep_tool(at, self.protected_paths),
            web_fetch_tool(at, self.fetcher),
            *([web_search_tool(self.search)] if self.search else []),
            *([feishu_read_tool(at, reader)] if (reader := self.documents()) else []),
            *([] if job.is_chat else [exec_tool(at, self.shell, job.mode)]),
            # Subagents cannot ask people.
            *([] if job.depth else [ask_user_tool()]),
            *self.history_tools(job, persona),
            memory_search_tool(memories),
            memory_get_tool(memories),
            *self._proposal_tools(job, persona),
            *self._spawn_tools(job),
            *self.skill_tools(job, persona),
        )

    def _spawn_tools(self, job: WorkerSpec) -> Sequence[AgentTool]:
        """Only workers that execute may start subagents."""
        if self.spawner is None or job.mode is not WorkerMode.EXECUTE:
            return ()
        return (sessions_spawn_tool(partial(self.spawner.spawn, job)),)

    def _memory_source(self, job: WorkerSpec, persona: Persona) -> MemorySource:
        if not job.uses_memory:
            return NoMemories()
        return WorkerMemoryLookup(
            recall=self.retriever,
            entries=self.entries,
            reader=partial(self.memories.resolve_reader, job, persona),
            task_logs=self.task_logs(job.account),
            zone=self.zone,
        )

    def _proposal_tools(self, job: WorkerSpec, persona: Persona) -> Sequence[AgentTool]:
        """For tasks: what is said in a chat is remembered with its turn. Sub-agents propose notes
        but no edits of pages, which their parent has read."""
        task = job.account.task
        if task is None or not job.uses_memory:
            return ()

        async def proposing_task() -> ProposingTask:
            reader = await self.memories.resolve_reader(job, persona)
            return ProposingTask(id=task, reader=reader, uses_memory=job.uses_memory)

        if job.depth:
            return (memory_note_tool(self.proposals, proposing_task),)
        return memory_proposal_tools(self.proposals, proposing_task)
