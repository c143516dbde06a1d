"""Figures, cleaning, and the way out and in again."""

from __future__ import annotations

from cards.model import Tone
from cards.views.errors import notice_card
from cards.views.memory.data import entry_data
from cards.views.memory.figures import (
    brought_card,
    clean_card,
    exported_card,
    stats_card,
)
from handlers.errors import UserError
from handlers.flags import flags_of
from handlers.ports import Forbidden
from handlers.request import Reply, Request
from storage.records.memory.shown import Wanted
from storage.records.people import Role

_SURE = {"yes", "确定", "是"}


async def stats(request: Request, _rest: str = "") -> Reply:
    told = await request.services.memory.stats(request.person, request.chat)
    refused = await request.services.memory.list(request.person, request.chat, Wanted.REJECTED)
    judged = [each for each in refused.entries if each.extra.get("admission")]
    data = {
        "kinds": dict(told.by_kind),
        "states": dict(told.by_state),
        "scopes": dict(told.by_scope),
        "jobs_waiting": told.jobs_waiting,
        "jobs_failed": told.jobs_failed,
        "vectors": told.vectors,
        "embedding_model": told.model,
        "quality": dict(told.quality),
        "refused": [entry_data(each) for each in judged],
    }
    return Reply(card=stats_card(told, request.words), data=data)


async def clean(request: Request, rest: str) -> Reply:
    """Says what would go; with `yes` it goes, after a backup of everything."""
    if not request.person.role.allows(Role.OWNER):
        raise Forbidden
    sure = rest.strip().casefold() in _SURE
    report = await request.services.memory.clean(
        request.person, request.chat, dry=not sure, source=request.source
    )
    data = {
        "done": report.done,
        "backup": report.backup,
        "before": report.before,
        **{
            name: [entry_data(each) for each in getattr(report, name)]
            for name in ("noise", "doubles", "weak")
        },
    }
    return Reply(card=clean_card(report, request.words), data=data)


async def export(request: Request, _rest: str = "") -> Reply:
    made = await request.services.memory.export(request.person, request.chat)
    card = exported_card(made.path, made.size, made.entries, request.words)
    return Reply(card=card, data={"path": made.path, "entries": made.entries})


async def bring(request: Request, rest: str) -> Reply:
    flags = flags_of(rest, valued=("scope",))
    if not request.files:
        text = request.words("memory.import_how")
        return Reply(card=notice_card("", text, tone=Tone.WARN), good=False)

    async def tell(done: int, of: int) -> None:
        said = request.words("memory.importing", done=done, of=of)
        await request.services.courier.stream(request.answer, said)

    scope = flags.options.get("scope", "")
    brought = await request.services.memory.bring(
        request.person,
        request.chat,
        request.files[0],
        scope=scope,
        tell=tell,
        source=request.source,
    )
    data = {
        "added": brought.added,
        "known": brought.known,
        "left": brought.left,
        "bad": dict(brought.bad),
    }
    return Reply(card=brought_card(brought, request.words), data=data)


async def restore(request: Request, rest: str) -> Reply:
    if not request.person.role.allows(Role.OWNER):
        raise Forbidden
    path = rest.strip() or next(iter(request.files), "")
    if not path:
        raise UserError("memory_how_restore")
    brought = await request.services.memory.restore(
        request.person, request.chat, path, source=request.source
    )
    data = {"added": brought.added, "known": brought.known, "bad": dict(brought.bad)}
    return Reply(card=brought_card(brought, request.words), data=data)
