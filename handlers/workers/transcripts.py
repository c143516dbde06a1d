"""What was said to models, and by them: for owners, in private."""

from __future__ import annotations

from typing import Any

from cards.views.workers.transcripts import exported_card, sessions_card
from handlers.errors import UserError
from handlers.ports import Forbidden
from handlers.registry import Commands
from handlers.request import Reply, Request
from storage.records.people import ChatKind, Role
from storage.records.sessions import SessionFacts

commands = Commands("system")

_LISTED = 20


@commands("transcript", usage="[id]", aliases=("会话记录",), immediate=True)
async def transcript(request: Request) -> Reply:
    """Get what was said in a session with a model, as a file (owner, in private)."""
    if not request.person.role.allows(Role.OWNER):
        raise Forbidden
    if request.chat.kind is not ChatKind.PRIVATE:
        raise UserError("only_in_private", command="transcript")
    wanted = request.args.strip()
    if not wanted:
        found = await request.services.transcripts.newest(_LISTED)
        card = sessions_card(found, request.words, zone=request.zone)
        return Reply(card=card, data={"sessions": [_data(each) for each in found]})
    done = await request.services.transcripts.export(wanted)
    card = exported_card(
        done.session, done.path, size=done.size, lines=done.lines, words=request.words
    )
    data = {"session": _data(done.session), "file": done.full, "lines": done.lines}
    return Reply(card=card, data=data)


def _data(each: SessionFacts) -> dict[str, Any]:
    return {
        "id": each.id,
        "key": each.key,
        "backend": each.backend,
        "model": each.model,
        "persona": each.persona,
        "turns": each.turns,
        "messages": each.messages,
        "open": each.open,
        "started_at": each.started_at.isoformat(),
        "last_used_at": each.last_used_at.isoformat(),
    }
