"""The MCP server: memory and conversation search for external agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.engine.llm.tool_calls import AgentTool
from bot.engine.mcp.server import protocol
from bot.engine.mcp.server.memory_access import McpMemoryAccess, McpMemoryDeps, ScopedReader
from bot.engine.mcp.server.memory_tools import CliHook, hook_context, memory_tools
from bot.engine.mcp.server.tool_server import answer_message
from bot.engine.memory.access import (
    CHAT_SCOPE,
    OWN_SCOPE,
    PRIVATE_SCOPE_KINDS,
    UnknownScopeName,
    parse_scope,
)
from bot.engine.memory.conversation_archive.history_tools import (
    HistoryToolContext,
    build_history_tools,
)
from bot.engine.memory.conversation_archive.service import ConversationHistory
from storage.memory.conversation_archive import ArchiveAccess
from storage.records.memory import GLOBAL_SCOPE, MemoryScope, MemoryScopeKind
from storage.records.people import Chat

MAX_SCOPES = 20


class ForbiddenScope(Exception):
    """This scope is never served. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpMemoryServer:
    """Serves the local owner, including their private scopes. `local_stores` searches without
    network access, so that hooks need not wait; `get_chat` returns the owner's chat."""

    stores: McpMemoryDeps
    local_stores: McpMemoryDeps
    history: ConversationHistory
    get_chat: Callable[[], Awaitable[Chat]]

    async def answer(self, message: Any, scopes: Sequence[str]) -> Any:
        """Answer one JSON-RPC message. Without scopes, only global memories are visible. Raises
        ForbiddenScope."""
        quick = protocol.answer_without_tools(message)
        if quick is not None:
            return quick
        chat = await self.get_chat()
        reader = ScopedReader(
            chat=chat, person=chat.person_id, allowed_scopes=_parse_scopes(scopes, chat)
        )
        if message["method"] == protocol.HOOK_METHOD:
            return await _run_hook(
                message, McpMemoryAccess(self.local_stores, reader), self.stores.mask
            )
        return await answer_message(
            self._tools(McpMemoryAccess(self.stores, reader), reader), message
        )

    def _tools(self, shelf: McpMemoryAccess, reader: ScopedReader) -> Sequence[AgentTool]:
        """History is available only together with personal memories."""
        own = any(scope.kind is MemoryScopeKind.PERSON for scope in reader.allowed_scopes)

        async def hear() -> ArchiveAccess:
            if reader.chat is None or not own:
                return ArchiveAccess(chat=None)
            return await self.history.access_in_chat(reader.person, reader.chat.id)

        ears = HistoryToolContext(
            search=self.history.search, get_access=hear, zone=self.history.zone
        )
        tools = (*memory_tools(shelf), *build_history_tools(ears))
        return [_redacted_tool(tool, self.stores.mask) for tool in tools]


def _parse_scopes(names: Sequence[str], chat: Chat) -> tuple[MemoryScope, ...]:
    if len(names) > MAX_SCOPES:
        raise ForbiddenScope(f"no more than {MAX_SCOPES} scopes")
    found = [_parse_own_scope(name, chat) for name in names] or [GLOBAL_SCOPE]
    return tuple(dict.fromkeys(found))


def _parse_own_scope(name: str, chat: Chat) -> MemoryScope:
    name = name.strip()
    if name == OWN_SCOPE:
        if chat.person_id is None:
            raise ForbiddenScope("nobody owns the web chat yet: start `shiftboss run` once")
        return MemoryScope(MemoryScopeKind.PERSON, chat.person_id)
    try:
        scope = parse_scope(name)
    except UnknownScopeName as error:
        raise ForbiddenScope(
            f"{error}; a scope is global, me, project:/FOLDER or any name"
        ) from error
    own = MemoryScope(MemoryScopeKind.PERSON, chat.person_id or "nobody")
    if name == CHAT_SCOPE or (scope.kind in PRIVATE_SCOPE_KINDS and scope != own):
        raise ForbiddenScope(f"{name[:80]!r} is somebody's own; yours is `{OWN_SCOPE}`")
    return scope


def _redacted_tool(tool: AgentTool, redact: Callable[[str], str]) -> AgentTool:
    """Results leave Shiftboss, so they are redacted."""

    async def run(arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(redact, await tool.run(arguments))

    return replace(tool, run=run)


async def _run_hook(message: Any, shelf: McpMemoryAccess, redact: Callable[[str], str]) -> Any:
    params = message.get("params") or {}
    try:
        hook = CliHook(str(params.get("hook")))
    except ValueError:
        return protocol.error_message(message["id"], protocol.INVALID_PARAMS, "no such hook")
    said = await hook_context(hook, shelf, str(params.get("text") or ""))
    return protocol.result_message(message["id"], {"text": await asyncio.to_thread(redact, said)})
