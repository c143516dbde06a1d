"""Where a conversation comes to an end, and what is kept of it: by rules, unless somebody has
retold it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from bot.engine.memory.episodes.retelling import Retold
from bot.engine.memory.writing.recorder import answered_in, said_in
from storage.memory.words import terms
from storage.records.memory.entries import (
    Category,
    Entry,
    MemoryKind,
    NewEntry,
    Tier,
)

IDLE = timedelta(minutes=5)
MOST_TURNS = 20
LEAST_TURNS = 2
_TURNS_TO_END = 3
_KEYWORDS = 8
_SHOWN_TURNS = 6
_SHOWN = 120
_DECISIONS = 5
_SEEN = 2000
_LEAST_LETTERS, _LEAST_HAN = 3, 2

_END = re.compile(
    r"^(?:(?:ok|okay|great|good|perfect|fine)[,.! ]*)?"
    r"(?:thanks|thank you|thx|bye|goodbye|that(?:'|’)?s (?:all|it)|done for (?:now|today)"
    r"|see you|good night|talk (?:to you )?later)\b.{0,20}$"
    r"|^(?:好的?[,，。! ]*)?(?:谢谢|多谢|辛苦了|再见|拜拜|晚安|先这样|就到这|就这样吧|下次再聊"
    r"|回头聊).{0,8}$",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:we|i|let us|let['’]s)\b.{0,20}\b(?:decided?|agreed?|settled?|go with|will use)\b"
    r"|决定|确定|就用|就按|说好|定了|采用",
    re.IGNORECASE,
)
_TONES = {
    "urgent": r"\b(?:urgent|asap|immediately|right now)\b|紧急|马上|立刻|赶紧",
    "technical": (
        r"\b(?:error|code|test|deploy|server|api|bug|file|function|database)\b"
        r"|代码|报错|部署|接口|服务器|数据库|测试|文件"
    ),
    "exploratory": r"\b(?:what if|idea|maybe|explore|compare|why)\b|如果|想法|可能|为什么|比较",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Turns that belong together; `ended` says that nothing more can come to them."""

    cells: Sequence[Entry]
    ended: bool


def stretches(
    cells: Sequence[Entry], boundaries: Sequence[datetime], now: datetime
) -> list[Stretch]:
    """A conversation ends where nobody speaks for five minutes, with a word of farewell, where a
    task is created, where it is begun anew or another backend answers, and after 20 turns."""
    found: list[Stretch] = []
    held: list[Entry] = []
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        held.append(cell)
        until = now if following is None else following.said_at
        if _ends(held, until, boundaries):
            found.append(Stretch(cells=tuple(held), ended=True))
            held = []
    if held:
        found.append(Stretch(cells=tuple(held), ended=False))
    return found


def _ends(held: Sequence[Entry], until: datetime, boundaries: Sequence[datetime]) -> bool:
    last = held[-1]
    farewell = len(held) >= _TURNS_TO_END and _END.match(said_in(last).strip()) is not None
    begun = any(last.said_at < each <= until for each in boundaries)
    return farewell or begun or until - last.said_at >= IDLE or len(held) >= MOST_TURNS


def keywords_of(cells: Sequence[Entry]) -> tuple[str, ...]:
    """What was spoken of most: words, and of Chinese pairs of characters."""
    counted: Counter[str] = Counter()
    for cell in cells:
        counted.update({each for each in terms(cell.text[:_SEEN]) if _is_telling(each)})
        counted.update({each for each in terms(said_in(cell)[:_SEEN]) if _is_telling(each)})
    return tuple(word for word, _ in counted.most_common(_KEYWORDS))


def episode_of(cells: Sequence[Entry], zone: tzinfo, retold: Retold | None = None) -> NewEntry:
    """Its summary is made of what was said, or is as it was `retold`."""
    first, last = cells[0], cells[-1]
    decisions = list(_decisions(cells) if retold is None else retold.decisions)
    senders = sorted({cell.sender for cell in cells if cell.sender})
    told = _in_short(cells) if retold is None else retold.summary
    text = _summary(cells, told, decisions, senders, zone)
    whole = " ".join(cell.text[:_SEEN] for cell in cells)
    return NewEntry(
        kind=MemoryKind.EPISODE,
        scope=first.scope,
        text=text,
        category=Category.EVENTS,
        keywords=keywords_of(cells),
        tier=Tier.PERIPHERAL,
        origin=first.origin,
        source=f"episode:{first.id}",
        evidence=[cell.id for cell in cells],
        thread=first.thread,
        chat=first.chat,
        person=first.person,
        said_at=last.said_at,
        extra={
            "turns": len(cells),
            "participants": senders,
            "decisions": decisions,
            "tone": _tone(whole),
            "began_at": first.said_at.isoformat(),
            "retold": retold is not None,
        },
    )


def _in_short(cells: Sequence[Entry]) -> str:
    """What was said first, and last."""
    shown = [*cells[: _SHOWN_TURNS - 1], cells[-1]] if len(cells) > _SHOWN_TURNS else cells
    return " / ".join(filter(None, (_short(said_in(cell)) for cell in shown)))


def _summary(
    cells: Sequence[Entry],
    told: str,
    decisions: Sequence[str],
    senders: Sequence[str],
    zone: tzinfo,
) -> str:
    began, ended = (each.said_at.astimezone(zone) for each in (cells[0], cells[-1]))
    who = ", ".join(senders)
    head = f"{began:%Y-%m-%d %H:%M}–{ended:%H:%M}" + (f" {who}" if who else "")
    return "\n".join([f"{head}: {told}", *(f"→ {each}" for each in decisions)])


def _decisions(cells: Sequence[Entry]) -> Iterator[str]:
    found = 0
    for cell in cells:
        for line in re.split(r"[\n。！!?？]|\. ", f"{said_in(cell)}\n{answered_in(cell)}"[:_SEEN]):
            if found < _DECISIONS and _DECIDED.search(line):
                found += 1
                yield _short(line)


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1].rstrip() + "…"


def _tone(text: str) -> str:
    fits = (name for name, rule in _TONES.items() if re.search(rule, text, re.IGNORECASE))
    return next(fits, "casual")


def _is_telling(term: str) -> bool:
    return not term.isdigit() and len(term) >= (_LEAST_LETTERS if term.isascii() else _LEAST_HAN)
