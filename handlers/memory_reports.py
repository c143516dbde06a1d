"""Handles memory statistics, cleanup, export and import, and the memories used in answers."""

from __future__ import annotations

from typing import Any

from cards.actions import MarkMemoriesHelpful
from cards.model import CardTone, notice_card
from cards.views import memory_reports as views
from cards.views.memory import entry_data, used_entry_data
from handlers.errors import UserError
from handlers.flags import parse_flags
from handlers.parsing import find_task, parse_number
from handlers.request import Reply, Request
from storage.records.memory_views import AnswerMemories, MemoryListFilter


async def show_used_memories(request: Request, rest: str = "") -> Reply:
    """Show the memories used in the last answer here, or in the named task."""
    if rest:
        return await _task_usage(request, rest.split(maxsplit=1)[0])
    behind = await request.services.memory.explain_answer(request.person, request.chat)
    card = views.answer_memories_card(behind, request.words, zone=request.zone)
    return Reply(card=card, data=_usage_data(behind))


async def helped_command(request: Request, rest: str = "") -> Reply:
    """Mark the last answer's memories as helpful, or those of a session and turn."""
    session, *turn = rest.split() or [""]
    if session and len(turn) != 1:
        raise UserError("memory_how_helped")
    return await mark_helpful(request, session, parse_number(turn[0]) if turn else 0)


async def helped_pressed(request: Request, action: MarkMemoriesHelpful) -> Reply:
    return await mark_helpful(request, action.session, action.turn)


async def mark_helpful(request: Request, session: str, turn: int) -> Reply:
    behind = await request.services.memory.mark_helpful(
        request.person, request.chat, session=session, turn=turn
    )
    thanked = any(each.confirmed for each in behind.used)
    card = views.answer_memories_card(
        behind, request.words, zone=request.zone, marked_helpful=thanked
    )
    return Reply(card=card, data=_usage_data(behind))


async def _task_usage(request: Request, prefix: str) -> Reply:
    task = await find_task(request, prefix)
    behind = await request.services.memory.explain_task(request.person, request.chat, task)
    card = views.task_memories_card(
        behind, f"{task.id} · {task.title}", request.words, zone=request.zone
    )
    return Reply(card=card, data={**_usage_data(behind), "task": task.id})


def _usage_data(behind: AnswerMemories) -> dict[str, Any]:
    return {
        "used": [used_entry_data(each) for each in behind.used],
        "hidden": behind.hidden_count,
        "session": behind.session,
        "turn": behind.turn,
        "at": behind.at.isoformat() if behind.at else None,
        "backend": behind.backend,
    }


_CONFIRM_WORDS = {"yes", "确定", "是"}


async def show_stats(request: Request, _rest: str = "") -> Reply:
    told = await request.services.memory.stats(request.person, request.chat)
    refused = await request.services.memory.list(
        request.person, request.chat, MemoryListFilter.REJECTED
    )
    judged = [each for each in refused.entries if each.extra.get("admission")]
    data = {
        "kinds": dict(told.by_kind),
        "states": dict(told.by_state),
        "scopes": dict(told.by_scope),
        "jobs_waiting": told.jobs_waiting,
        "jobs_failed": told.jobs_failed,
        "vectors": told.vectors,
        "embedding_model": told.embedding_model,
        "quality": dict(told.quality),
        "refused": [entry_data(each) for each in judged],
    }
    return Reply(card=views.memory_stats_card(told, request.words), data=data)


async def clean_up(request: Request, rest: str) -> Reply:
    """Report what a cleanup would remove; with `yes`, remove it after a full backup."""
    request.require_owner()
    sure = rest.strip().casefold() in _CONFIRM_WORDS
    report = await request.services.memory.clean(
        request.person, request.chat, dry_run=not sure, source=request.source
    )
    data = {
        "done": report.done,
        "backup": report.backup,
        "before": report.removed_before,
        **{
            name: [entry_data(each) for each in getattr(report, name)]
            for name in ("noise", "doubles", "weak")
        },
    }
    return Reply(card=views.memory_cleanup_card(report, request.words), data=data)


async def export_memories(request: Request, _rest: str = "") -> Reply:
    made = await request.services.memory.export(request.person, request.chat)
    card = views.memory_export_card(made.path, made.size, made.entries, request.words)
    return Reply(card=card, data={"path": made.path, "entries": made.entries})


async def import_memories(request: Request, rest: str) -> Reply:
    flags = parse_flags(rest, valued=("scope",))
    if not request.files:
        text = request.words("memory.import_how")
        return Reply(card=notice_card("", text, tone=CardTone.WARN), good=False)

    async def tell(done: int, of: int) -> None:
        progress = request.words("memory.importing", done=done, of=of)
        await request.services.courier.stream(request.answer_ref, progress)

    scope = flags.options.get("scope", "")
    brought = await request.services.memory.import_entries(
        request.person,
        request.chat,
        request.files[0],
        scope=scope,
        progress=tell,
        source=request.source,
    )
    data = {
        "added": brought.added,
        "known": brought.already_known,
        "left": brought.left_out,
        "bad": dict(brought.line_errors),
    }
    return Reply(card=views.memory_import_card(brought, request.words), data=data)


async def restore_backup(request: Request, rest: str) -> Reply:
    request.require_owner()
    path = rest.strip() or next(iter(request.files), "")
    if not path:
        raise UserError("memory_how_restore")
    brought = await request.services.memory.restore(
        request.person, request.chat, path, source=request.source
    )
    data = {
        "added": brought.added,
        "known": brought.already_known,
        "bad": dict(brought.line_errors),
    }
    return Reply(card=views.memory_import_card(brought, request.words), data=data)
