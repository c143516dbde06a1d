"""What a summary is made from, as text for a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from bot.engine.memory.archive.tokens import shortened, tokens
from storage.records.memory.archive import Part, Speaker, Summary

_BLOCK = "[{at:%Y-%m-%d %H:%M %Z} | {role}]\n{text}"
_SPAN = "[{since:%Y-%m-%d %H:%M %Z} – {until:%Y-%m-%d %H:%M %Z}]\n{text}"
_BLOB = re.compile(r"[A-Za-z0-9+/=]{200,}")
_OPEN, _CLOSE = "<memory>", "</memory>"
"""What the program itself puts beside what is asked: `telling.told`. Other tags are people's."""
_BLANK = re.compile(r"\s*")
_LOOKED_UP = "[looked something up in memory]"
_CUT = "\n[… the middle of this is left out …]\n"


def of_messages(parts: Sequence[Part], zone: ZoneInfo) -> str:
    """Without what was told to the model from memory, and without pictures and thoughts. Empty
    where nobody said anything."""
    blocks = [
        _BLOCK.format(at=part.at.astimezone(zone), role=part.role.value, text=text)
        for part in parts
        if (text := plain(worded(part)))
    ]
    return "\n\n".join(blocks)


def of_summaries(summaries: Sequence[Summary], zone: ZoneInfo) -> str:
    blocks = [
        _SPAN.format(
            since=each.earliest_at.astimezone(zone),
            until=each.latest_at.astimezone(zone),
            text=each.content,
        )
        for each in summaries
    ]
    return "\n\n".join(blocks)


def worded(part: Part) -> str:
    """Its text; of a look into memory, which is kept without words, that there was one."""
    return part.text or (_LOOKED_UP if part.role is Speaker.CALL else "")


def plain(text: str) -> str:
    return _BLOB.sub("[data]", unprompted(text)).strip()


def unprompted(text: str, *, cut: str = "") -> str:
    """What somebody said, without what was remembered beside it. In one pass, however many blocks
    are opened and never closed. Where the middle of the text was left out for `cut`, the end of a
    block may be gone with it."""
    kept, at = list[str](), 0
    while (begins := text.find(_OPEN, at)) >= 0:
        ends, closed = text.find(_CLOSE, begins), _CLOSE
        if ends < 0 and cut:
            ends, closed, cut = text.find(cut, begins), cut, ""
        if ends < 0:
            break
        kept.append(text[at:begins])
        after = _BLANK.match(text, ends + len(closed))
        at = len(text) if after is None else after.end()
    return "".join((*kept, text[at:]))


def fitted(text: str, most: int) -> str:
    """Its beginning and its end, at most about that long."""
    if tokens(text) <= most:
        return text
    head = shortened(text, most * 2 // 3)
    tail = shortened(text[::-1], most // 3)[::-1]
    return head + _CUT + tail
