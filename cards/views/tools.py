"""Renders standing permissions, tool calls and MCP servers. All that servers say of themselves is
untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import StartMcpSignIn
from cards.catalog import TextCatalog
from cards.permission_reasons import describe_reason
from storage.records.approvals import StandingPermission, ToolCallRecord, ToolCallState
from storage.records.people import PersonId
from storage.records.workers import McpConsent, McpServerState, McpServerStatus

# --- standing permissions and tool calls

_MAX_LISTED = 30
_MAX_TOOL = 40
_MAX_PATTERN = 200
_MAX_TITLE = 120
_MAX_DETAIL = 600
_MAX_NAME = 40
_MAX_SCOPE = 300


def grants_card(
    grants: Sequence[StandingPermission],
    names: Mapping[PersonId, str],
    words: TextCatalog,
    *,
    zone: ZoneInfo,
) -> model.Card:
    """Standing permissions, with the number that revokes each."""
    if not grants:
        title = words("tools.list.none_title")
        return model.titled_card(
            title, model.TextBlock(words("tools.list.none")), tone=model.CardTone.NEUTRAL
        )
    rows = [
        words(
            "tools.list.row",
            n=each.id,
            scope=words(f"tools.scope.{each.scope}", id=each.subject),
            tool=formats.code_text(each.tool, _MAX_TOOL),
            pattern=formats.escape_markdown(each.pattern, _MAX_PATTERN),
            name=formats.escape_markdown(names.get(each.granted_by, ""), _MAX_NAME),
            at=formats.date_time(each.at, zone),
        )
        for each in grants[:_MAX_LISTED]
    ]
    blocks: list[model.Block] = [model.TextBlock("\n\n".join(rows))]
    if len(grants) > _MAX_LISTED:
        blocks.append(model.NoteBlock(words("tools.list.more", n=len(grants) - _MAX_LISTED)))
    blocks.append(model.NoteBlock(words("tools.list.how")))
    title = words("tools.list.title", n=len(grants))
    return model.titled_card(title, *blocks)


def calls_card(
    task_id: str, calls: Sequence[ToolCallRecord], words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    """A task's tool calls: the request, the decision and the result."""
    title = words("tools.log.title", id=task_id, n=len(calls))
    if not calls:
        return model.titled_card(
            title, model.TextBlock(words("tools.log.none")), tone=model.CardTone.NEUTRAL
        )
    rows = [
        words(
            "tools.log.row",
            at=formats.date_time(each.asked_at, zone),
            state=words(f"tools.state.{each.state}"),
            tool=formats.code_text(each.tool, _MAX_TOOL),
            title=formats.escape_markdown(each.title.removeprefix(each.tool), _MAX_TITLE),
        )
        for each in calls
    ]
    blocks: list[model.Block] = [model.TextBlock("\n\n".join(rows))]
    requests = [each for each in calls if each.approval_id and each.detail]
    if requests:
        last = requests[-1]
        code = model.CodeBlock(formats.truncate(last.detail, _MAX_DETAIL))
        blocks.append(model.CollapsibleBlock(formats.single_line(last.title, _MAX_TITLE), (code,)))
    return model.titled_card(title, *blocks)


def grants_data(grants: Sequence[StandingPermission]) -> Mapping[str, Any]:
    return {
        "grants": [
            {
                "number": each.id,
                "scope": each.scope.value,
                "subject": each.subject,
                "tool": each.tool,
                "pattern": each.pattern,
                "by": each.granted_by,
                "at": each.at.isoformat(),
            }
            for each in grants
        ]
    }


def calls_data(
    task_id: str, calls: Sequence[ToolCallRecord], words: TextCatalog
) -> Mapping[str, Any]:
    return {
        "id": task_id,
        "calls": [
            {
                "tool": each.tool,
                "kind": each.kind,
                "title": each.title,
                "detail": each.detail,
                "verdict": each.verdict,
                "why": describe_reason(each.why, words),
                "state": each.state.value,
                "approval": each.approval_id,
                "answer": each.answer,
                "size": each.size,
                "asked_at": each.asked_at.isoformat(),
                "made": each.state in {ToolCallState.DONE, ToolCallState.FAILED},
            }
            for each in calls
        ],
    }


# --- MCP servers

_MAX_SERVERS = 20
_MAX_TOOLS = 12
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


def mcp_rights_card(server: str, scope: str, words: TextCatalog) -> model.Card:
    """A call was refused because nobody has granted these rights; the server has named them."""
    facts = {
        "server": formats.escape_markdown(server, _MAX_NAME),
        "scope": formats.escape_markdown(scope, _MAX_SCOPE),
    }
    button = model.CardButton(
        words("mcp.rights.button"), StartMcpSignIn(server=server), style=model.ButtonStyle.PRIMARY
    )
    return model.titled_card(
        words("mcp.rights.title"),
        model.TextBlock(words("mcp.rights.text", **facts)),
        model.ButtonsBlock((button,)),
        tone=model.CardTone.WARN,
    )


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
