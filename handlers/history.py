"""Handles the history search, conversation summaries and transcript export."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cards.views.history import history_card, sessions_card, transcript_card
from cards.views.notices import notice_card
from handlers.errors import UsageError, UserError
from handlers.ports_workers import HistoryLine
from handlers.registry import CommandRegistry
from handlers.request import Reply, Request
from storage.records.workers import SessionInfo

commands = CommandRegistry("talk")

MAX_FOUND, MAX_SHOWN = 10, 6
_MAX_QUERY = 200
_SEARCH_WORDS = frozenset({"search", "find", "搜索", "查找", "找"})
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|(\S+)')


@commands("history", aliases=("历史", "聊天记录"), immediate=True, verbatim=True)
async def search_history(request: Request) -> Reply:
    first, _, rest = request.args.strip().partition(" ")
    searched = rest.strip() if first.casefold() in _SEARCH_WORDS else request.args.strip()
    if first.casefold() in _SEARCH_WORDS and not searched:
        raise UsageError("history")
    history = request.services.history
    cut = False
    if searched:
        past = await history.search(
            request.person, request.chat, _search_terms(searched), MAX_FOUND
        )
        found, cut = past.lines, past.incomplete
    else:
        found = await history.list_recent(request.person, request.chat, MAX_SHOWN)
    card = history_card(
        [(each.at, each.by_bot, each.text, each.task, each.elsewhere) for each in found],
        searched,
        request.words,
        zone=request.zone,
        partial=any(each.partial_match for each in found),
        incomplete=cut,
    )
    return Reply(card=card, data={"lines": _history_data(found)})


@commands("compact", aliases=("压缩", "整理对话"), immediate=True)
async def compact_conversation(request: Request) -> Reply:
    begun = await request.services.history.compact(request.chat.id)
    text = request.words("history.compacting" if begun else "talk.none")
    return Reply(card=notice_card("", text))


def _search_terms(text: str) -> Sequence[str]:
    found = [next(filter(None, each.groups())) for each in _QUOTED.finditer(text[:_MAX_QUERY])]
    return [word.strip() for word in found if word.strip()]


def _history_data(found: Sequence[HistoryLine]) -> list[dict[str, Any]]:
    return [
        {
            "at": each.at.isoformat(),
            "by": "assistant" if each.by_bot else "user",
            "text": each.text,
            "ref": each.ref,
            "task": each.task,
        }
        for each in found
    ]


transcript_commands = CommandRegistry("system")

_MAX_SESSIONS = 20


@transcript_commands("transcript", aliases=("会话记录",), immediate=True)
async def export_transcript(request: Request) -> Reply:
    request.require_owner()
    if not request.in_private:
        raise UserError("only_in_private", command="transcript")
    wanted = request.args.strip()
    if not wanted:
        found = await request.services.transcripts.list_recent(_MAX_SESSIONS)
        card = sessions_card(found, request.words, zone=request.zone)
        return Reply(card=card, data={"sessions": [_session_data(each) for each in found]})
    done = await request.services.transcripts.export(wanted)
    card = transcript_card(
        done.session, done.path, size=done.size, lines=done.lines, words=request.words
    )
    data = {"session": _session_data(done.session), "file": done.absolute_path, "lines": done.lines}
    return Reply(card=card, data=data)


def _session_data(each: SessionInfo) -> dict[str, Any]:
    return {
        "id": each.id,
        "key": each.key,
        "backend": each.backend,
        "model": each.model,
        "persona": each.persona,
        "turns": each.turns,
        "messages": each.message_count,
        "open": each.is_open,
        "started_at": each.started_at.isoformat(),
        "last_used_at": each.last_used_at.isoformat(),
    }
