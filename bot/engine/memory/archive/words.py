"""The words of stored messages, whichever backend wrote them, of old sessions too."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bot.engine.llm.loop import turns
from bot.engine.memory.archive.finding.watch import Watch
from bot.engine.memory.archive.source import unprompted
from bot.engine.memory.archive.tokens import PICTURE, tokens
from storage.db import Database
from storage.memory.archive.hearing import Hearing
from storage.memory.archive.said import ArchiveRepo, Unread
from storage.records.memory.archive import Part, Speaker

_PAGE = 200

RESULT_ENDS = 1_500
"""Characters that stay of a long result, at its beginning and at its end."""
_LONGEST_RESULT = 4_000
_LONGEST_CALL = 1_000
_CUT = "\n[… {n} characters left out …]\n"

_LOOKED_UP = frozenset(
    {"memory_search", "memory_get", "history_grep", "history_describe", "history_expand"}
)
"""Tools that look into what is remembered, or was said before."""
_CLI_CUT = "\n[…]\n"
"""What a coding CLI's session has in the place of the middle of a long text: `acp.memory`."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Reading:
    def __init__(self, db: Database, said: ArchiveRepo) -> None:
        self._db = db
        self._said = said

    async def catch_up(self, session_id: str, watch: Watch | None = None) -> bool:
        """The words of all its messages are known after that, or of as many as there was time for.
        False where they were before."""
        found = False
        while unread := await self._said.unread(session_id, _PAGE):
            parts = await asyncio.to_thread(
                lambda rows: [part for each in rows for part in parts_of(each)], unread
            )
            async with self._db.write() as tx:
                await self._said.put(tx, session_id, parts)
            found = True
            if watch is not None and watch.is_late:
                watch.cut = True
                break
        return found

    async def catch_up_for(self, hearing: Hearing, watch: Watch) -> None:
        """Those of all sessions that this listener may look into, the last used first."""
        for session_id in await self._said.behind(hearing):
            await self.catch_up(session_id, watch)
            if watch.cut:
                return


def parts_of(unread: Unread, *, whole: bool = False) -> list[Part]:
    """Never empty: a message without words is one part without text. Of long results and calls
    only the ends, or the beginning, unless the `whole` is asked for."""
    said = list(_said(unread.content, whole=whole)) or [(Speaker.OTHER, "", 0)]
    return [
        Part(
            message=unread.message,
            ordinal=n,
            role=role,
            text=_storable(text),
            tokens=size,
            at=unread.at,
        )
        for n, (role, text, size) in enumerate(said)
    ]


def _said(content: Any, *, whole: bool) -> Iterator[tuple[Speaker, str, int]]:
    if turns.is_message(content):
        for part in content["parts"]:
            yield from _of_part(part, content, whole=whole)
    elif isinstance(content, Mapping) and isinstance(cli := content.get("cli"), Mapping):
        for role, key in ((Speaker.USER, "prompt"), (Speaker.ASSISTANT, "answer")):
            text = str(cli.get(key) or "")
            said = unprompted(text, cut=_CLI_CUT) if role is Speaker.USER else text
            yield role, said, tokens(text)
    else:
        text = _dumped(content)
        yield Speaker.OTHER, text if whole else _ends(text), tokens(text)


def _of_part(
    part: turns.Part, row: turns.Row, *, whole: bool
) -> Iterator[tuple[Speaker, str, int]]:
    kind = part["part_kind"]
    if part.get("tool_name") in _LOOKED_UP:
        # What is only looked up is no part of what was said, and would outlive a forgetting here.
        role = Speaker.CALL if kind == "tool-call" else Speaker.TOOL
        yield role, "", tokens(_dumped(part.get("args") or part.get("content")))
    elif kind == "tool-call":
        call = f"{part['tool_name']} {_dumped(part.get('args'))}"
        yield Speaker.CALL, call if whole else _head(call), tokens(call)
    elif turns.answered(part):
        result = _dumped(part.get("content"))
        text = _ends(result)
        yield Speaker.TOOL, result if whole else text, tokens(text)
    elif kind == "thinking":
        yield Speaker.OTHER, "", tokens(str(part.get("content") or ""))
    elif kind != "system-prompt":
        role = Speaker.ASSISTANT if turns.is_response(row) else Speaker.USER
        texts, pictures = _pieces(part.get("content"))
        text = "\n".join(texts)
        yield role, unprompted(text), tokens(text) + pictures * PICTURE


def _pieces(content: Any) -> tuple[list[str], int]:
    """The texts of a prompt, and how many other things it has; those are named."""
    several = content if isinstance(content, list) else [content]
    texts, others = [], 0
    for each in several:
        if isinstance(each, Mapping) and each.get("kind") == "binary":
            texts.append(f"[{each.get('media_type') or 'file'}]")
            others += 1
        elif each is not None:
            texts.append(_dumped(each))
    return texts, others


def _dumped(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _ends(text: str) -> str:
    if len(text) <= _LONGEST_RESULT:
        return text
    note = _CUT.format(n=len(text) - 2 * RESULT_ENDS)
    return text[:RESULT_ENDS] + note + text[-RESULT_ENDS:]


def _head(text: str) -> str:
    if len(text) <= _LONGEST_CALL:
        return text
    return text[:_LONGEST_CALL] + _CUT.format(n=len(text) - _LONGEST_CALL)


def _storable(text: str) -> str:
    """What every store can keep."""
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode()
