"""The MCP server: memory and conversation search for external agents, with its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, object_schema
from bot.engine.mcp.server import protocol
from bot.engine.mcp.server.hook_context import RESULTS_HEADER, answer_hook_message
from bot.engine.mcp.server.memory_access import (
    McpMemoryAccess,
    McpMemoryDeps,
    McpMemoryNote,
    ScopedReader,
    ScopeNotWritable,
    parse_served_scopes,
)
from bot.engine.mcp.server.tool_server import answer_message
from bot.engine.memory.conversation_archive.history_tools import (
    HistoryToolContext,
    build_history_tools,
)
from bot.engine.memory.conversation_archive.service import ConversationHistory
from storage.memory.conversation_archive import ArchiveAccess
from storage.records.memory import (
    MAX_ENTRY_TEXT,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryMatch,
    MemoryOrigin,
    MemoryScope,
    MemoryScopeKind,
    MemoryTier,
)
from storage.records.people import Chat

NOTHING_YET = "No memories stored yet."
NOTHING_FITS = "No matching memories found."
DEFAULT_RESULTS, MAX_RESULTS = 5, 50
_MAX_QUERY_CHARS = 500
_MAX_SHOWN_CHARS = 300
_MAX_TAGS = 20
_MAX_TAG_CHARS = 60
_MAX_LABEL_CHARS = 60
_ID_PREFIX = "memory:"
_OWN_SCOPE = "me"
_SEARCH_ARGUMENTS: Mapping[str, Any] = {
    "query": {"type": "string", "maxLength": 10_000},
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS},
}
_CATEGORIES: Mapping[str, MemoryCategory] = {
    "general": MemoryCategory.OTHER,
    "preference": MemoryCategory.PREFERENCES,
    "decision": MemoryCategory.CASES,
    "learning": MemoryCategory.LESSONS,
    "lesson": MemoryCategory.LESSONS,
    "architecture": MemoryCategory.ENTITIES,
    "debugging": MemoryCategory.PITFALLS,
    "pitfall": MemoryCategory.PITFALLS,
    "pattern": MemoryCategory.PATTERNS,
    "tool": MemoryCategory.TOOLS,
    "tool_usage": MemoryCategory.TOOLS,
    **{each.value: each for each in MemoryCategory},
}


def memory_tools(memory: McpMemoryAccess) -> Sequence[AgentTool]:
    writing = (store_memory, extract_memories, log_session) if memory.writable_scopes else ()
    reading = (recall_memory, search_vault, search_knowledge, get_memory, load_context)
    return [make(memory) for make in (*reading, *writing)]


def recall_memory(memory: McpMemoryAccess) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        try:
            scope = _parse_scope(arguments, memory)
        except ValueError as wrong:
            return f"{ERROR_PREFIX}{wrong}"
        wanted = _ResultFilter(arguments)
        return await _search(
            memory, arguments, scope=scope, matches=wanted.matches if wanted.is_active else None
        )

    return AgentTool(
        name="recall_memory",
        description=(
            "Search what is remembered, best first, by a few words that it would contain; days"
            " such as “last Friday” are understood. get_memory shows one in full."
        ),
        schema=object_schema(
            "query",
            **_SEARCH_ARGUMENTS,
            scope=_scope_schema(memory.readable_scopes, "all of them"),
            category={"enum": sorted(_CATEGORIES)},
            tier={"enum": [each.value for each in MemoryTier]},
            min_importance={"type": "number", "minimum": 1, "maximum": 10},
        ),
        run=run,
        kind=CallKind.SEARCH,
    )


def search_vault(memory: McpMemoryAccess) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        return await _search(memory, arguments, matches=_is_note)

    return AgentTool(
        name="search_vault",
        description=(
            "Search only the notes: what people wrote by hand (MEMORY.md and the other files) and"
            " what log_session stored."
        ),
        schema=object_schema("query", **_SEARCH_ARGUMENTS),
        run=run,
        kind=CallKind.SEARCH,
    )


def search_knowledge(memory: McpMemoryAccess) -> AgentTool:
    served = [each for each in memory.readable_scopes if each.kind is MemoryScopeKind.CUSTOM]

    async def run(arguments: Mapping[str, Any]) -> str:
        name = str(arguments.get("collection") or "").strip()
        wanted = [each for each in served if not name or name in {each.name, str(each)}]
        if not wanted:
            there = ", ".join(each.name for each in served) or "none: start it with --scope NAME"
            return f"{ERROR_PREFIX}the collections of this server are {there}"
        only = frozenset(wanted)
        return await _search(
            memory,
            arguments,
            scope=wanted[0] if len(wanted) == 1 else None,
            matches=lambda entry: entry.scope in only,
        )

    return AgentTool(
        name="search_knowledge",
        description="Search only imported documents (`shiftboss memory import`), by collection.",
        schema=object_schema(
            "query",
            **_SEARCH_ARGUMENTS,
            collection={"type": "string", "maxLength": 200, "description": "Default: all."},
        ),
        run=run,
        kind=CallKind.SEARCH,
    )


def get_memory(memory: McpMemoryAccess) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        wanted = str(arguments["id"]).strip().removeprefix(_ID_PREFIX)
        entry = await memory.get(wanted)
        if entry is None:
            return f"{ERROR_PREFIX}there is no {wanted[:_MAX_LABEL_CHARS]!r} that you may see"
        described = _describe_entry(entry, memory.zone)
        return f"{RESULTS_HEADER}\n{described}, {entry.state.value}\n\n{entry.text}"

    return AgentTool(
        name="get_memory",
        description="Read one memory in full, by its id.",
        schema=object_schema("id", id={"type": "string", "maxLength": 200}),
        run=run,
        kind=CallKind.READ,
    )


def load_context(memory: McpMemoryAccess) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:  # noqa: ARG001 - the signature of all tools
        return await memory.standing_context() or NOTHING_YET

    return AgentTool(
        name="load_context",
        description="What is always worth knowing here: who the user is, their wishes and rules.",
        schema=object_schema(),
        run=run,
        kind=CallKind.READ,
    )


def store_memory(memory: McpMemoryAccess) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        called = str(arguments.get("category") or "general")
        note = McpMemoryNote(
            text=str(arguments["content"]),
            category=_CATEGORIES[called],
            label=called,
            keywords=tuple(str(each)[:_MAX_TAG_CHARS] for each in arguments.get("tags") or ())[
                :_MAX_TAGS
            ],
            importance=float(arguments.get("importance") or 5) / 10,
        )
        return await _store_note(memory, note, arguments)

    return AgentTool(
        name="store_memory",
        description=(
            "Remember one thing that will still be true and useful in another conversation: a"
            " wish, a decision with its reason, a pitfall, how something is done here. One fact a"
            " call, in whole sentences; nothing secret."
        ),
        schema=object_schema(
            "content",
            content={"type": "string", "maxLength": MAX_ENTRY_TEXT},
            category={"enum": sorted(_CATEGORIES)},
            tags={"type": "array", "items": {"type": "string"}},
            importance={"type": "number", "minimum": 1, "maximum": 10},
            scope=_scope_schema(memory.writable_scopes, "the first"),
        ),
        run=run,
        kind=CallKind.OTHER,
    )


def log_session(memory: McpMemoryAccess) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        title = str(arguments.get("title") or "").strip()
        summary = str(arguments["summary"]).strip()
        text = f"{title}\n{summary}" if title else summary
        note = McpMemoryNote(
            text=text, kind=MemoryKind.EPISODE, category=MemoryCategory.EVENTS, label="session"
        )
        return await _store_note(memory, note, arguments)

    return AgentTool(
        name="log_session",
        description="Store what this session was about, what was decided and what is left to do.",
        schema=object_schema(
            "summary",
            summary={"type": "string", "maxLength": MAX_ENTRY_TEXT - 300},
            title={"type": "string", "maxLength": 200},
            scope=_scope_schema(memory.writable_scopes, "the first"),
        ),
        run=run,
        kind=CallKind.OTHER,
    )


def extract_memories(memory: McpMemoryAccess) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        try:
            kept = await memory.ingest_conversation(
                str(arguments["conversation"]), _parse_scope(arguments, memory)
            )
        except (ValueError, ScopeNotWritable) as wrong:
            return f"{ERROR_PREFIX}{wrong}"
        if kept is None:
            return "Not stored: it is empty, or it was forgotten on request."
        return (
            f"Kept as {_ID_PREFIX}{kept.id} in {kept.scope}; facts are drawn out of it in a while."
        )

    return AgentTool(
        name="extract_memories",
        description=(
            "Hand in a piece of conversation to be read through for what is worth remembering."
        ),
        schema=object_schema(
            "conversation",
            conversation={"type": "string", "maxLength": MAX_ENTRY_TEXT},
            scope=_scope_schema(memory.writable_scopes, "the first"),
        ),
        run=run,
        kind=CallKind.OTHER,
    )


def render_line(found: MemoryMatch, zone: tzinfo) -> str:
    entry = found.entry
    text = " ".join(entry.text.split())
    shown = text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
    parts = ", ".join(f"{name} {value:.3f}" for name, value in found.parts.items())
    scored = f"{found.score:.4f}" + (f"; {parts}" if parts else "")
    described = _describe_entry(entry, zone)
    return f"- [{entry.category.value}|{entry.tier.value}] ({scored}) {shown} <{described}>"


def _describe_entry(entry: MemoryEntry, zone: tzinfo) -> str:
    parts_shown = [
        f"{_ID_PREFIX}{entry.id}",
        entry.kind.value,
        str(entry.scope),
        f"importance {entry.importance * 10:g}",
        f"{entry.said_at.astimezone(zone):%Y-%m-%d}",
        *entry.keywords,
    ]
    return ", ".join(parts_shown)


async def _search(
    memory: McpMemoryAccess,
    arguments: Mapping[str, Any],
    *,
    scope: MemoryScope | None = None,
    matches: Callable[[MemoryEntry], bool] | None = None,
) -> str:
    query = str(arguments["query"]).strip()[:_MAX_QUERY_CHARS]
    if not query:
        return f"{ERROR_PREFIX}say what to look for"
    limit = int(arguments.get("limit") or DEFAULT_RESULTS)
    found = await memory.search(query, MAX_RESULTS if matches else limit, scope=scope)
    shown = [each for each in found if matches is None or matches(each.entry)][:limit]
    if shown:
        return "\n".join([RESULTS_HEADER, *(render_line(each, memory.zone) for each in shown)])
    return NOTHING_YET if await memory.is_empty() else NOTHING_FITS


def _is_note(entry: MemoryEntry) -> bool:
    return entry.origin is MemoryOrigin.MANUAL or entry.kind is MemoryKind.EPISODE


async def _store_note(
    memory: McpMemoryAccess, note: McpMemoryNote, arguments: Mapping[str, Any]
) -> str:
    try:
        kept = await memory.store(replace(note, scope=_parse_scope(arguments, memory)))
    except (ValueError, ScopeNotWritable) as wrong:
        return f"{ERROR_PREFIX}{wrong}"
    if kept is None:
        return "Not stored: it is empty, was forgotten on request, or reads like orders to an AI."
    return f"Kept as {_ID_PREFIX}{kept.id} in {kept.scope}."


class _ResultFilter:
    """Filters search results by the tool's arguments."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._category = _CATEGORIES.get(str(arguments.get("category") or ""))
        self._tier = str(arguments.get("tier") or "")
        self._min_importance = float(arguments.get("min_importance") or 1) / 10

    @property
    def is_active(self) -> bool:
        return self._category is not None or bool(self._tier) or self._min_importance > 1 / 10

    def matches(self, entry: MemoryEntry) -> bool:
        return (
            self._category in {None, entry.category}
            and self._tier in {"", entry.tier.value}
            and (entry.importance >= self._min_importance or not self.is_active)
        )


def _scope_schema(scopes: Sequence[MemoryScope], usual: str) -> Mapping[str, Any]:
    names = ", ".join(map(str, scopes))
    return {
        "type": "string",
        "maxLength": 1_000,
        "description": f"One of {names}. Leave it out for {usual}.",
    }


def _parse_scope(arguments: Mapping[str, Any], memory: McpMemoryAccess) -> MemoryScope | None:
    """Resolve a scope by name, or by kind if unambiguous. Raises ValueError."""
    name = str(arguments.get("scope") or "").strip()
    if not name:
        return None
    kind = MemoryScopeKind.PERSON.value if name == _OWN_SCOPE else name
    alike = [each for each in memory.readable_scopes if each.kind.value == kind]
    named = [each for each in memory.readable_scopes if str(each) == name] or alike
    if len(named) != 1:
        there = ", ".join(map(str, memory.readable_scopes))
        raise ValueError(f"scope is one of {there}, not {name[:_MAX_LABEL_CHARS]!r}")
    return named[0]


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
            chat=chat, person=chat.person_id, allowed_scopes=parse_served_scopes(scopes, chat)
        )
        if message["method"] == protocol.HOOK_METHOD:
            return await answer_hook_message(
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


def _redacted_tool(tool: AgentTool, redact: Callable[[str], str]) -> AgentTool:
    """Results leave Shiftboss, so they are redacted."""

    async def run(arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(redact, await tool.run(arguments))

    return replace(tool, run=run)
