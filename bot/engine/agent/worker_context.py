"""Builds a worker's context (persona, tools, authorizer and prompt blocks), and assigns personas,
backends and sessions to the steps of one task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias

from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.prompt_versions import TaskAttempt
from bot.engine.llm.backend import BackendError, McpServer, SelectedBackend
from bot.engine.llm.tool_calls import AgentTool, CallAuthorizer
from bot.engine.redaction import redact_tool
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import BackendPreference, WorkerSpec
from storage.records.workers import ModelSession

# --- the context of one run


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The context of one run.

    `system_prompt` goes before the caller's own system prompt and stays the same across turns, so
    that it is cached. `prompt_prefix` goes before the message, applies to this turn only and ends
    with a blank line unless empty."""

    persona: Persona
    tools: tuple[AgentTool, ...]
    system_prompt: str
    permit: CallAuthorizer
    mcp_servers: tuple[McpServer, ...]
    prompt_prefix: str


PersonaVersionChooser: TypeAlias = Callable[[WorkerSpec, Persona], Awaitable[Persona]]
"""Returns a persona in the version for this worker, and stores which it was."""

BuiltInPromptChooser: TypeAlias = Callable[[str, str, TaskAttempt], Awaitable[str]]
"""Returns a built-in prompt, given by name and text, in the version for this attempt, and stores
which it was."""

ToolFactory: TypeAlias = Callable[[WorkerSpec, Persona], Sequence[AgentTool]]
"""Creates tools of one kind for a worker; returns none where they don't apply."""

ContextBlock: TypeAlias = Callable[[WorkerSpec, Persona], Awaitable[str]]
"""Returns one block of the prompt; empty for none."""


class PersonaSource(Protocol):
    async def get(self, name: str) -> Persona:
        """Return the current persona; unknown and empty names return the default."""
        ...

    async def get_all(self) -> Mapping[str, Persona]:
        """Return all personas by name, the default first."""
        ...


class AuthorizerFactory(Protocol):
    def create_authorizer(self, spec: WorkerSpec, persona: Persona) -> CallAuthorizer:
        """Return the authorizer that decides on this worker's calls and audits them."""
        ...


class WorkerContextBuilder:
    """Builds contexts; blocks and tools appear in the given order.

    Tool results are passed through `mask`, which removes secrets, and cut to a readable length."""

    def __init__(
        self,
        *,
        personas: PersonaSource,
        tool_factories: Sequence[ToolFactory],
        system_blocks: Sequence[ContextBlock],
        authorizer_factory: AuthorizerFactory,
        mask: Callable[[str], str],
        prompt_blocks: Sequence[ContextBlock],
        shared_servers: Callable[[], Awaitable[Sequence[McpServer]]],
        project_servers: Callable[[WorkerSpec], Awaitable[Sequence[McpServer]]] | None = None,
        choose_version: PersonaVersionChooser | None = None,
        choose_built_in: BuiltInPromptChooser | None = None,
    ) -> None:
        """`shared_servers` returns the MCP servers of all personas, `project_servers` those of the
        worker's project. Without `choose_version` and `choose_built_in`, prompts are used as they
        are written."""
        self.personas = personas
        self._tool_factories = tuple(tool_factories)
        self._system_blocks = tuple(system_blocks)
        self._authorizer_factory = authorizer_factory
        self._mask = mask
        self._prompt_blocks = tuple(prompt_blocks)
        self._shared_servers = shared_servers
        self._project_servers = project_servers
        self._choose_version = choose_version
        self._choose_built_in = choose_built_in

    async def build(self, spec: WorkerSpec) -> WorkerContext:
        persona = await self.personas.get(spec.persona)
        if self._choose_version is not None:
            # Before the paid call: trials are judged by what was used.
            persona = await self._choose_version(spec, persona)
        made = [tool for make in self._tool_factories for tool in make(spec, persona)]
        blocks = [await block_of(spec, persona) for block_of in self._system_blocks]
        prompt_texts = [await block_of(spec, persona) for block_of in self._prompt_blocks]
        return WorkerContext(
            persona=persona,
            tools=tuple(
                redact_tool(tool, spec.workspace, self._mask)
                for tool in made
                if is_tool_allowed(persona, tool.name)
            ),
            system_prompt="\n\n".join(block for block in (persona.system_text, *blocks) if block),
            permit=self._authorizer_factory.create_authorizer(spec, persona),
            mcp_servers=choose_servers(persona, await self._list_servers(spec)),
            prompt_prefix="".join(f"{block}\n\n" for block in prompt_texts if block),
        )

    async def get_built_in(self, name: str, written: str, attempt: TaskAttempt) -> str:
        """The version of a built-in prompt for this attempt."""
        if self._choose_built_in is None:
            return written
        return await self._choose_built_in(name, written, attempt)

    async def _list_servers(self, spec: WorkerSpec) -> Sequence[McpServer]:
        """The shared servers, and those of the project with other names."""
        shared = await self._shared_servers()
        if self._project_servers is None:
            return shared
        names = {each.name for each in shared}
        found = await self._project_servers(spec)
        return (*shared, *(each for each in found if each.name not in names))


def choose_servers(persona: Persona, shared: Sequence[McpServer]) -> tuple[McpServer, ...]:
    """The persona's servers, and the shared ones of other names whose tools it may use."""
    own = {each.name for each in persona.servers}
    usable = (
        each
        for each in shared
        if each.name not in own
        and (
            any(pattern.startswith(_tool_prefix(each)) for pattern in persona.tools)
            or is_tool_allowed(persona, f"mcp__{each.name}__tool")
        )
    )
    return (*persona.servers, *usable)


def _tool_prefix(server: McpServer) -> str:
    return f"mcp__{server.name}__" if server.withheld is None else "mcp__"


def is_tool_allowed(persona: Persona, tool: str) -> bool:
    """Match the persona's globs: denied takes precedence; an empty allow list allows all."""
    if any(fnmatchcase(tool, pattern) for pattern in persona.denied):
        return False
    return not persona.tools or any(fnmatchcase(tool, pattern) for pattern in persona.tools)


# --- which persona, backend and session a step gets

_ALWAYS_NEW = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedWorker:
    """A persona with its backend and session."""

    persona: Persona
    chosen: SelectedBackend
    session: ModelSession


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    persona: Persona
    chosen: SelectedBackend
    key: str


def persona_purposes(personas: Mapping[str, Persona]) -> Mapping[str, str]:
    """Return the personas that steps may name, with their purposes."""
    return {name: each.purpose for name, each in personas.items() if each.system_text}


class WorkerTeam:
    """The workers of one task.

    `preferences` take precedence over a persona's own backend and model. Workers on the same
    model API share one session; coding CLIs have one session per persona, stored in the
    persona's home."""

    _lead_assignment: _Assignment
    _current_lead: AssignedWorker

    def __init__(
        self,
        gateway: ModelGateway,
        context_builder: WorkerContextBuilder,
        *,
        key: str,
        preferences: Sequence[BackendPreference],
        max_session_tokens: int,
    ) -> None:
        """Sessions longer than `max_session_tokens` are not continued."""
        self._gateway = gateway
        self._context_builder = context_builder
        self._key = key
        self._preferences = tuple(preferences)
        self._max_session_tokens = max_session_tokens
        self._sessions: dict[str, ModelSession] = {}
        self._retired_keys: set[str] = set()
        self._lock = asyncio.Lock()

    async def assign_lead(self, name: str) -> AssignedWorker:
        """Assign the persona that plans and executes steps without a named persona; must be called
        first.

        Raises BackendDenied."""
        persona = await self._context_builder.personas.get(name)
        self._lead_assignment = _Assignment(
            persona=persona, chosen=self._select_backend(persona), key=self._key
        )
        return await self._resolve(self._lead_assignment)

    @property
    def current_lead(self) -> AssignedWorker:
        """The current lead; its backend and session may change during the task."""
        return self._current_lead

    async def get_worker(
        self, name: str, branch: str = "", *, keeps_history: bool = False
    ) -> AssignedWorker:
        """Return the worker for a step; unknown names select the lead.

        `branch` separates the sessions of steps that may run concurrently. Where it
        `keeps_history`, the step's session is not left. Raises BackendDenied."""
        persona = (
            (await self._context_builder.personas.get_all()).get(name.casefold()) if name else None
        )
        lead = self._lead_assignment
        if persona is None or persona.name == lead.persona.name:
            if lead.chosen.instead_of:  # the first of the chain may be well again
                chosen = self._select_backend(lead.persona, keeps_history=keeps_history)
                self._lead_assignment = lead = replace(lead, chosen=chosen)
            return await self._resolve(self._assignment(lead.persona, lead.chosen, branch))
        chosen = self._select_backend(persona, keeps_history=keeps_history)
        return await self._resolve(self._assignment(persona, chosen, branch))

    def _assignment(self, persona: Persona, chosen: SelectedBackend, branch: str) -> _Assignment:
        lead = self._lead_assignment
        shares = chosen.backend.name == lead.chosen.backend.name and chosen.backend.accepts_tools
        is_lead = persona.name == lead.persona.name
        key = self._key if is_lead or shares else f"{self._key}:{persona.name}"
        return _Assignment(persona=persona, chosen=chosen, key=_branch_key(key, branch))

    async def get_replacement(
        self,
        failed: AssignedWorker,
        error: BackendError,
        branch: str = "",
        *,
        path: str | None = None,
        keeps_history: bool = False,
    ) -> AssignedWorker | None:
        """Return the same persona on the next backend of its chain; None if none may continue the
        step at `path`."""
        instead = await self._gateway.select_next(
            error, failed.session, path=path, keeps_history=keeps_history
        )
        if instead is None:
            return None
        if failed.persona.name == self._lead_assignment.persona.name:
            self._lead_assignment = replace(self._lead_assignment, chosen=instead)
        return await self._resolve(self._assignment(failed.persona, instead, branch))

    def retire_session(self, session: ModelSession) -> None:
        """Start a new session for all workers that shared this one, which grew too long."""
        for key in [key for key, each in self._sessions.items() if each.id == session.id]:
            del self._sessions[key]
            self._retired_keys.add(key)

    async def _resolve(self, post: _Assignment) -> AssignedWorker:
        async with self._lock:
            # Concurrent steps may need the same session.
            known = self._sessions.get(post.key)
            if known is None or known.backend != post.chosen.backend.name:
                most = _ALWAYS_NEW if post.key in self._retired_keys else self._max_session_tokens
                self._sessions[post.key] = await self._gateway.open_session(
                    post.key, post.chosen, max_tokens=most, persona=post.persona.name
                )
                self._retired_keys.discard(post.key)
        session = self._sessions[post.key]
        worker = AssignedWorker(persona=post.persona, chosen=post.chosen, session=session)
        if post == self._lead_assignment:
            self._current_lead = worker
        return worker

    def _select_backend(self, persona: Persona, *, keeps_history: bool = False) -> SelectedBackend:
        wanted = next(
            (each for each in (*self._preferences, persona) if each.model or each.backend), None
        )
        model, backend = ("", "") if wanted is None else (wanted.model, wanted.backend)
        return self._gateway.select_backend(
            model, backend, persona.fallbacks, keeps_history=keeps_history
        )


def _branch_key(key: str, lane: str) -> str:
    return f"{key}/{lane}" if lane else key
