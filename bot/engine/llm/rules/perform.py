"""Doing what a form asked for, inside the workspace, and saying exactly what was done."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, assert_never

from bot.engine.llm import workspace as folder
from bot.engine.llm.rules.acts import (
    Act,
    Count,
    Earlier,
    Greet,
    Haiku,
    InFile,
    ListFolder,
    Making,
    Show,
    Source,
    Summarise,
    Unit,
    Unknown,
    Wait,
    Write,
)
from bot.engine.llm.rules.acts import Literal as WordForWord
from bot.engine.llm.rules.extract import count, summary
from cards.words import Words, words_for
from storage.records.people import Language

MAX_READ = 1_000_000
MAX_SHOWN = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where an act is done: `earlier` are the acts before it, for "it" to mean something."""

    workspace: Path | None
    words: Words
    earlier: Sequence[Act]
    longest_wait: float
    sleep: Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`text` is for the Boss; `files` are relative to the workspace."""

    status: Literal["done", "error", "blocked"]
    text: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    content: str
    told: str


class _Cannot(Exception):
    """Tried and failed; the text is for the Boss."""


async def perform(act: Act, site: Site) -> Outcome:
    """Do it. What goes wrong is an outcome, never an exception."""
    try:
        return await _perform(act, site)
    except _Cannot as error:
        return Outcome(status="error", text=str(error))
    except folder.PathRefused as error:
        key = f"offline.refused.{error.refusal}"
        return Outcome(status="error", text=site.words(key, path=_code(error.path)))


async def _perform(act: Act, site: Site) -> Outcome:
    match act:
        case Haiku() | Summarise() | Count() | Show() | ListFolder():
            return Outcome(status="done", text=(await _make(act, site)).told)
        case Write():
            return await _write(act, site)
        case Wait():
            return await _wait(act, site)
        case Greet():
            return Outcome(status="done", text=site.words("offline.hello"))
        case Unknown():
            return Outcome(status="blocked", text=site.words("offline.cannot"))
    assert_never(act)


async def _write(act: Write, site: Site) -> Outcome:
    made = await _make(act.content, site)
    workspace = _workspace(site)
    if not made.content and await asyncio.to_thread(_is_there, workspace, act.path):
        raise _Cannot(site.words("offline.exists", path=_code(act.path)))
    text = made.content if made.content.endswith("\n") or not made.content else f"{made.content}\n"
    path = await asyncio.to_thread(folder.write_text, workspace, act.path, text)
    wrote = site.words("offline.wrote", path=_code(path), n=len(text))
    known = isinstance(act.content, Show)
    return Outcome(status="done", text=wrote if known else f"{made.told}\n\n{wrote}", files=(path,))


async def _wait(act: Wait, site: Site) -> Outcome:
    seconds = f"{act.seconds:g}"
    if act.seconds > site.longest_wait:
        longest = f"{site.longest_wait:g}"
        raise _Cannot(site.words("offline.too_long", seconds=seconds, longest=longest))
    await site.sleep(act.seconds)
    return Outcome(status="done", text=site.words("offline.waited", seconds=seconds))


async def _make(act: Making, site: Site) -> _Made:
    words = site.words
    match act:
        case Haiku():
            return _haiku(act, words)
        case Summarise(source=source):
            picked = await asyncio.to_thread(summary, await _text(source, site))
            content = "\n".join(f"- {one}" for one in picked)
            if not content:
                raise _Cannot(words("offline.empty"))
            return _Made(content=content, told=f"{words('offline.summary')}\n\n{_cut(content)}")
        case Count(unit=unit, source=source):
            told = words(_COUNTED[unit], n=count(await _text(source, site), unit))
            return _Made(content=told, told=told)
        case Show(source=source):
            content = await _text(source, site)
            return _Made(
                content=content, told=_fenced(content) if content else words("offline.empty")
            )
        case ListFolder(path=path):
            return await _list(path, site)
    assert_never(act)


def _haiku(act: Haiku, words: Words) -> _Made:
    """One of the catalogue's own few, in the language it was asked in; said to be a template."""
    own = words_for(Language.CHINESE if act.chinese else Language.ENGLISH)
    named = (name for name, about in _TOPICS if about.search(act.topic))
    lines = own(f"offline.haiku.{next(named, 'any')}")
    content = f"# {act.topic}\n\n{lines}" if act.topic else lines
    return _Made(content=content, told=f"{words('offline.template')}\n\n{_fenced(content)}")


async def _list(path: str, site: Site) -> _Made:
    entries, total = await asyncio.to_thread(folder.list_folder, _workspace(site), path)
    content = "\n".join(f"- {one.name}/" if one.is_folder else f"- {one.name}" for one in entries)
    head = site.words("offline.listed", n=total, path=_code(path))
    return _Made(content=content or head, told=f"{head}\n\n{_fenced(content)}" if content else head)


async def _text(source: Source, site: Site) -> str:
    match source:
        case WordForWord(text=text):
            return text
        case InFile(path=path):
            workspace = _workspace(site)
            return await asyncio.to_thread(folder.read_text, workspace, path, limit=MAX_READ)
        case Earlier():
            return await _earlier(site)
    assert_never(source)


async def _earlier(site: Site) -> str:
    """What the last step that made anything made, made again: these acts always make the same."""
    for at in range(len(site.earlier) - 1, -1, -1):
        before = replace(site, earlier=site.earlier[:at])
        match site.earlier[at]:
            case Write(path=path):
                return await _text(InFile(path=path), before)
            case Haiku() | Summarise() | Count() | Show() | ListFolder() as made:
                return (await _make(made, before)).content
            case _:
                continue
    raise _Cannot(site.words("offline.nothing_before"))


def _workspace(site: Site) -> Path:
    if site.workspace is None:
        raise _Cannot(site.words("offline.no_folder"))
    return site.workspace


def _is_there(workspace: Path, path: str) -> bool:
    return (workspace / folder.relative(workspace, path)).exists()


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _fenced(text: str) -> str:
    """As it is, whatever it holds: the fence is longer than any within."""
    text = _cut(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _code(path: str) -> str:
    return f"`{path.replace('`', '')}`"


_COUNTED = {
    Unit.WORDS: "offline.counted.words",
    Unit.LINES: "offline.counted.lines",
    Unit.CHARACTERS: "offline.counted.characters",
}
_TOPICS = (
    ("queue", re.compile(r"queue|wait|line\b|排队|队列|等", re.IGNORECASE)),
    ("work", re.compile(r"\bwork|task|job|office|todo|工作|任务|上班|待办", re.IGNORECASE)),
    ("rain", re.compile(r"rain|storm|雨", re.IGNORECASE)),
    ("code", re.compile(r"code|coding|program|software|bug|代码|程序|编程|软件", re.IGNORECASE)),
    ("moon", re.compile(r"moon|night|月|夜", re.IGNORECASE)),
    ("sea", re.compile(r"\bsea\b|ocean|wave|海|浪", re.IGNORECASE)),
)
