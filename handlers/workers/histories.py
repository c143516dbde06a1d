"""What was said before: looked up by its words, and told to models in fewer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cards.views.errors import notice_card
from cards.views.workers.histories import history_card
from handlers.errors import Usage
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.services.histories import PastLine

commands = Commands("talk")

FOUND, SHOWN = 10, 6
_LONGEST = 200
_SEARCH = frozenset({"search", "find", "搜索", "查找", "找"})
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|(\S+)')


@commands(
    "history",
    usage="[search words]",
    aliases=("历史", "聊天记录"),
    immediate=True,
    verbatim=True,
)
async def history(request: Request) -> Reply:
    """Find what was said before by its words, however long ago."""
    first, _, rest = request.args.strip().partition(" ")
    searched = rest.strip() if first.casefold() in _SEARCH else request.args.strip()
    if first.casefold() in _SEARCH and not searched:
        raise Usage("history")
    book = request.services.histories
    cut = False
    if searched:
        past = await book.search(request.person, request.chat, _words(searched), FOUND)
        found, cut = past.lines, past.cut
    else:
        found = await book.last(request.person, request.chat, SHOWN)
    card = history_card(
        [(each.at, each.by_bot, each.text, each.task, each.elsewhere) for each in found],
        searched,
        request.words,
        zone=request.zone,
        near=any(each.near for each in found),
        cut=cut,
    )
    return Reply(card=card, data={"lines": _data(found)})


@commands("compact", aliases=("压缩", "整理对话"), immediate=True)
async def compact(request: Request) -> Reply:
    """Summarise the beginning of this conversation now; nothing is lost."""
    begun = await request.services.histories.compact(request.chat.id)
    said = request.words("history.compacting" if begun else "talk.none")
    return Reply(card=notice_card("", said))


def _words(text: str) -> Sequence[str]:
    found = [next(filter(None, each.groups())) for each in _QUOTED.finditer(text[:_LONGEST])]
    return [word.strip() for word in found if word.strip()]


def _data(found: Sequence[PastLine]) -> list[dict[str, Any]]:
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
