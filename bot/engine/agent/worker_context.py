"""Builds a worker's context: persona, tools, authorizer and prompt blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias

from bot.engine.llm.backend import McpServer
from bot.engine.llm.tool_calls import AgentTool, CallAuthorizer
from bot.engine.redaction import redact_tool
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import WorkerSpec


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
    ) -> None:
        """`shared_servers` returns the MCP servers of all personas, `project_servers` those of the
        worker's project. Without `choose_version`, personas are used as they are written."""
        self.personas = personas
        self._tool_factories = tuple(tool_factories)
        self._system_blocks = tuple(system_blocks)
        self._authorizer_factory = authorizer_factory
        self._mask = mask
        self._prompt_blocks = tuple(prompt_blocks)
        self._shared_servers = shared_servers
        self._project_servers = project_servers
        self._choose_version = choose_version

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
