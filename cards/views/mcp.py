"""Renders the MCP servers. All that servers say of themselves is untrusted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from cards import formats, model
from cards.catalog import TextCatalog
from storage.records.workers import McpConsent, McpServerState, McpServerStatus

_MAX_SERVERS = 20
_MAX_TOOLS = 12
_MAX_NAME = 40
_MAX_ERROR = 200
_MARKS = {
    McpServerState.STARTING: "🔌",
    McpServerState.READY: "✅",
    McpServerState.BUSY: "⚙️",
    McpServerState.STOPPED: "⚪",
    McpServerState.FAILED: "⚠️",
}


def mcp_servers_card(
    servers: Sequence[McpServerStatus],
    faults: Sequence[str],
    words: TextCatalog,
    *,
    with_places: bool,
    consents: Sequence[McpConsent] = (),
) -> model.Card:
    """`with_places` shows where each is used; `faults` are problems of files, `consents` decisions
    about servers of projects."""
    blocks: list[model.Block] = [
        model.TextBlock("\n".join(_lines(each, words, with_places)))
        for each in servers[:_MAX_SERVERS]
    ]
    if not servers:
        blocks.append(model.TextBlock(words("mcp.list.none")))
    blocks += [model.TextBlock(f"⚠️ {formats.escape_markdown(each, _MAX_ERROR)}") for each in faults]
    if len(servers) > _MAX_SERVERS:
        blocks.append(model.NoteBlock(words("mcp.list.more", n=len(servers) - _MAX_SERVERS)))
    if consents:
        lines = [_consent_line(each, words) for each in reversed(consents)][:_MAX_SERVERS]
        blocks.append(model.TextBlock("\n".join((words("mcp.consent.list"), *lines))))
        blocks.append(model.NoteBlock(words("mcp.consent.revoke")))
    blocks.append(model.NoteBlock(words("mcp.list.note")))
    is_bad = faults or any(each.state is McpServerState.FAILED for each in servers)
    tone = model.CardTone.WARN if is_bad else model.CardTone.INFO
    return model.titled_card(words("mcp.list.title"), *blocks, tone=tone)


def _consent_line(consent: McpConsent, words: TextCatalog) -> str:
    project = formats.escape_markdown(PurePath(consent.project).name, _MAX_NAME)
    names = [formats.escape_markdown(each, _MAX_NAME) for each in consent.servers[:_MAX_TOOLS]]
    state = words(f"mcp.consent.{'allowed' if consent.is_allowed else 'refused'}")
    mark = "✅" if consent.is_allowed else "❌"
    return f"- {mark} **{project}**: {', '.join(names)} · {state} · `{consent.id}`"


def _lines(server: McpServerStatus, words: TextCatalog, with_places: bool) -> list[str]:
    name = formats.escape_markdown(server.server, _MAX_NAME)
    about = [words(f"mcp.state.{server.state}")]
    if server.persona:
        about.append(formats.escape_markdown(server.persona, _MAX_NAME))
    if with_places and server.task_id:
        about.append(words("mcp.list.in_task", id=server.task_id))
    elif with_places and server.chat_id:
        about.append(words("mcp.list.in_chat", id=server.chat_id))
    if server.restarts:
        about.append(words("mcp.list.restarts", n=server.restarts))
    lines = [f"- {_MARKS[server.state]} **{name}**: {' · '.join(about)}"]
    if server.tools:
        tools = [formats.escape_markdown(each, _MAX_NAME) for each in server.tools[:_MAX_TOOLS]]
        left = len(server.tools) - len(tools)
        more = [words("mcp.list.more", n=left)] if left else []
        lines.append(f"  🔧 {', '.join([*tools, *more])}")
    if server.error:
        error = formats.escape_markdown(server.error, _MAX_ERROR)
        lines.append(f"  {words('mcp.list.error', error=error)}")
    return lines
