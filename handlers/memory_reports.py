"""Handles memory statistics, cleanup, export and import, and the memories used in answers."""

from __future__ import annotations

from typing import Any

from cards.memory_actions import MarkMemoriesHelpful
from cards.model import CardTone, notice_card
from cards.views import memory_reports as views
from cards.views.memory import entry_data, used_entry_data
from cards.views.memory_reports import memory_about_card
from handlers.errors import UserError
from handlers.flags import parse_flags
from handlers.parsing import find_task, parse_number
from handlers.request import Reply, Request
from storage.records.memory import AnswerMemories, MemoryListFilter


async def show_used_memories(request: Request, rest: str = "") -> Reply:
    """Show the memories used in the last answer here, or in the named task."""
    if rest:
        return await _task_usage(request, rest.split(maxsplit=1)[0])
    memories = await request.services.memory.explain_answer(request.person, request.chat)
    card = views.answer_memories_card(memories, request.words, zone=request.zone)
    return Reply(card=card, data=_usage_data(memories))


async def helped_command(request: Request, rest: str = "") -> Reply:
    """Mark the last answer's memories as helpful, or those of a session and turn."""
    session, *turn = rest.split() or [""]
    if session and len(turn) != 1:
        raise UserError("memory_how_helped")
    return await mark_helpful(request, session, parse_number(turn[0]) if turn else 0)


async def helped_pressed(request: Request, action: MarkMemoriesHelpful) -> Reply:
    return await mark_helpful(request, action.session, action.turn)


async def mark_helpful(request: Request, session: str, turn: int) -> Reply:
    memories = await request.services.memory.mark_helpful(
        request.person, request.chat, session=session, turn=turn
    )
    any_confirmed = any(each.confirmed for each in memories.used)
    card = views.answer_memories_card(
        memories, request.words, zone=request.zone, marked_helpful=any_confirmed
    )
    return Reply(card=card, data=_usage_data(memories))


async def _task_usage(request: Request, prefix: str) -> Reply:
    task = await find_task(request, prefix)
    memories = await request.services.memory.explain_task(request.person, request.chat, task)
    card = views.task_memories_card(
        memories, f"{task.id} · {task.title}", request.words, zone=request.zone
    )
    return Reply(card=card, data={**_usage_data(memories), "task": task.id})


def _usage_data(memories: AnswerMemories) -> dict[str, Any]:
    return {
        "used": [used_entry_data(each) for each in memories.used],
        "hidden": memories.hidden_count,
        "session": memories.session,
        "turn": memories.turn,
        "at": memories.at.isoformat() if memories.at else None,
        "backend": memories.backend,
    }


_CONFIRM_WORDS = {"yes", "确定", "是"}


async def show_stats(request: Request, _rest: str = "") -> Reply:
    stats = await request.services.memory.stats(request.person, request.chat)
    rejections = await request.services.memory.list(
        request.person, request.chat, MemoryListFilter.REJECTED
    )
    refusals = [each for each in rejections.entries if each.extra.get("admission")]
    data = {
        "kinds": dict(stats.by_kind),
        "states": dict(stats.by_state),
        "scopes": dict(stats.by_scope),
        "jobs_waiting": stats.jobs_waiting,
        "jobs_failed": stats.jobs_failed,
        "vectors": stats.vectors,
        "embedding_model": stats.embedding_model,
        "quality": dict(stats.quality),
        "refused": [entry_data(each) for each in refusals],
    }
    return Reply(card=views.memory_stats_card(stats, request.words), data=data)


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
    export = await request.services.memory.export(request.person, request.chat)
    card = views.memory_export_card(export.path, export.size, export.entries, request.words)
    return Reply(card=card, data={"path": export.path, "entries": export.entries})


async def import_memories(request: Request, rest: str) -> Reply:
    flags = parse_flags(rest, valued=("scope",))
    if not request.files:
        text = request.words("memory.import_how")
        return Reply(card=notice_card("", text, tone=CardTone.WARN), good=False)

    async def show_progress(done: int, of: int) -> None:
        progress = request.words("memory.importing", done=done, of=of)
        await request.services.courier.stream(request.answer_ref, progress)

    scope = flags.options.get("scope", "")
    report = await request.services.memory.import_entries(
        request.person,
        request.chat,
        request.files[0],
        scope=scope,
        progress=show_progress,
        source=request.source,
    )
    data = {
        "added": report.added,
        "known": report.already_known,
        "left": report.left_out,
        "bad": dict(report.line_errors),
    }
    return Reply(card=views.memory_import_card(report, request.words), data=data)


async def restore_backup(request: Request, rest: str) -> Reply:
    request.require_owner()
    path = rest.strip() or next(iter(request.files), "")
    if not path:
        raise UserError("memory_how_restore")
    report = await request.services.memory.restore(
        request.person, request.chat, path, source=request.source
    )
    data = {
        "added": report.added,
        "known": report.already_known,
        "bad": dict(report.line_errors),
    }
    return Reply(card=views.memory_import_card(report, request.words), data=data)


async def show_about(request: Request, rest: str) -> Reply:
    """Facts about a person, project or place, with when and from where."""
    name = rest.strip()
    if not name:
        raise UserError("memory_how_about")
    groups = await request.services.memory.list_about(request.person, request.chat, name)
    data = {
        "about": [
            {
                "description": each.description,
                "memories": [entry_data(entry) for entry in each.entries],
            }
            for each in groups
        ]
    }
    return Reply(card=memory_about_card(groups, name, request.words, zone=request.zone), data=data)
