"""Defines and executes the actions that need no model."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

from bot.engine.llm import workspace_files as folder
from cards.catalog import TextCatalog, catalog_for
from storage.records.people import Language


class TextUnit(StrEnum):
    WORDS = "words"
    LINES = "lines"
    CHARACTERS = "characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierOutput:
    """ "It": the output of an earlier step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralText:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    path: str


TextSource: TypeAlias = LiteralText | FileText | EarlierOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class HaikuAction:
    """`chinese` is the language of the request."""

    topic: str
    chinese: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SummariseAction:
    source: TextSource


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAction:
    unit: TextUnit
    source: TextSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowAction:
    source: TextSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFolderAction:
    path: str


ContentAction: TypeAlias = (
    HaikuAction | SummariseAction | CountAction | ShowAction | ListFolderAction
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFileAction:
    """Write the output of `content` to a file."""

    path: str
    content: ContentAction


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAction:
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GreetAction:
    """A greeting or thanks only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownAction:
    """Anything that needs a model."""


OfflineAction: TypeAlias = (
    ContentAction | WriteFileAction | WaitAction | GreetAction | UnknownAction
)


SUMMARY_SENTENCES = 3
MAX_SENTENCES = 2_000

_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9'-]*|[\u4e00-\u9fff]+")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_WORD_UNIT = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+(?:['’-][^\W\u4e00-\u9fff]+)*")
_ENGLISH_STOP_WORDS = (
    "a an and are as at be been but by can could did do for from had has have he her his i if in"
    " into is it its may more most not of on one or our out she so than that the their them then"
    " there these they this to up was we were what when which who will with would you your"
)
_CHINESE_STOP_PAIRS = (
    "我们 你们 他们 这个 那个 一个 可以 就是 因为 所以 但是 没有 什么 自己 这样 如果"
)
_STOP_WORDS = frozenset(f"{_ENGLISH_STOP_WORDS} {_CHINESE_STOP_PAIRS}".split())


def summarise_text(text: str, limit: int = SUMMARY_SENTENCES) -> tuple[str, ...]:
    """Return up to `limit` sentences, verbatim and in order, ranked by terms they share with
    others."""
    sentences = split_sentences(text)[:MAX_SENTENCES]
    if len(sentences) <= limit:
        return tuple(sentences)
    weights = Counter(term for sentence in sentences for term in set(_terms(sentence)))
    scores = [_score(sentence, weights) for sentence in sentences]
    best = sorted(range(len(sentences)), key=lambda at: (-scores[at], at))[:limit]
    return tuple(sentences[at] for at in sorted(best))


def split_sentences(text: str) -> list[str]:
    """Split into sentences and lines, without heading and list markers."""
    bare = (re.sub(r"^\s*(?:#+|[-*•]|\d+[.)])\s+", "", part) for part in _SENTENCE.split(text))
    return [part.strip() for part in bare if re.search(r"\w", part)]


def count_units(text: str, unit: TextUnit) -> int:
    """A Chinese character counts as a word, as in word processors."""
    match unit:
        case TextUnit.WORDS:
            return sum(1 for _ in _WORD_UNIT.finditer(text))
        case TextUnit.LINES:
            return len(text.splitlines())
        case TextUnit.CHARACTERS:
            return len(text)


def _score(sentence: str, weights: Counter[str]) -> float:
    """Score by shared terms, normalized by length with a penalty for very short sentences."""
    terms = _terms(sentence)
    return sum(weights[term] - 1 for term in set(terms)) / (len(terms) + 4)


def _terms(sentence: str) -> list[str]:
    terms: list[str] = []
    for word in _WORD.findall(sentence):
        if _CHINESE.match(word):
            terms += (word[at : at + 2] for at in range(len(word) - 1))
        else:
            terms.append(word.lower())
    return [term for term in terms if term not in _STOP_WORDS]


MAX_READ = 1_000_000
MAX_SHOWN = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """The environment of an action; `earlier_actions` resolve "it"."""

    workspace: Path | None
    words: TextCatalog
    earlier_actions: Sequence[OfflineAction]
    longest_wait: float
    sleep: Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOutcome:
    """`text` is for the Boss; `files` are relative to the workspace."""

    status: Literal["done", "error", "blocked"]
    text: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProducedContent:
    content: str
    message: str


class _ActionFailed(Exception):
    """The message is for the Boss."""


async def perform_action(action: OfflineAction, context: ActionContext) -> ActionOutcome:
    """Perform the action; failures are outcomes, never exceptions."""
    try:
        return await _dispatch_action(action, context)
    except _ActionFailed as error:
        return ActionOutcome(status="error", text=str(error))
    except folder.PathRefused as error:
        key = f"offline.refused.{error.refusal}"
        return ActionOutcome(status="error", text=context.words(key, path=_inline_code(error.path)))


async def _dispatch_action(action: OfflineAction, context: ActionContext) -> ActionOutcome:
    match action:
        case HaikuAction() | SummariseAction() | CountAction() | ShowAction() | ListFolderAction():
            return ActionOutcome(status="done", text=(await _produce(action, context)).message)
        case WriteFileAction():
            return await _write_file(action, context)
        case WaitAction():
            return await _wait(action, context)
        case GreetAction():
            return ActionOutcome(status="done", text=context.words("offline.hello"))
        case UnknownAction():
            return ActionOutcome(status="blocked", text=context.words("offline.cannot"))
    assert_never(action)


async def _write_file(action: WriteFileAction, context: ActionContext) -> ActionOutcome:
    produced = await _produce(action.content, context)
    workspace = _workspace(context)
    if not produced.content and await asyncio.to_thread(_exists, workspace, action.path):
        raise _ActionFailed(context.words("offline.exists", path=_inline_code(action.path)))
    text = (
        produced.content
        if produced.content.endswith("\n") or not produced.content
        else f"{produced.content}\n"
    )
    path = await asyncio.to_thread(folder.write_text, workspace, action.path, text)
    wrote = context.words("offline.wrote", path=_inline_code(path), n=len(text))
    known = isinstance(action.content, ShowAction)
    return ActionOutcome(
        status="done", text=wrote if known else f"{produced.message}\n\n{wrote}", files=(path,)
    )


async def _wait(action: WaitAction, context: ActionContext) -> ActionOutcome:
    seconds = f"{action.seconds:g}"
    if action.seconds > context.longest_wait:
        longest = f"{context.longest_wait:g}"
        raise _ActionFailed(context.words("offline.too_long", seconds=seconds, longest=longest))
    await context.sleep(action.seconds)
    return ActionOutcome(status="done", text=context.words("offline.waited", seconds=seconds))


async def _produce(action: ContentAction, context: ActionContext) -> _ProducedContent:
    words = context.words
    match action:
        case HaikuAction():
            return _produce_haiku(action, words)
        case SummariseAction(source=source):
            picked = await asyncio.to_thread(summarise_text, await _source_text(source, context))
            content = "\n".join(f"- {one}" for one in picked)
            if not content:
                raise _ActionFailed(words("offline.empty"))
            return _ProducedContent(
                content=content, message=f"{words('offline.summary')}\n\n{_shorten(content)}"
            )
        case CountAction(unit=unit, source=source):
            text = words(
                _COUNT_KEYS[unit], n=count_units(await _source_text(source, context), unit)
            )
            return _ProducedContent(content=text, message=text)
        case ShowAction(source=source):
            content = await _source_text(source, context)
            return _ProducedContent(
                content=content, message=_fenced(content) if content else words("offline.empty")
            )
        case ListFolderAction(path=path):
            return await _list_folder(path, context)
    assert_never(action)


def _produce_haiku(action: HaikuAction, words: TextCatalog) -> _ProducedContent:
    """Return a template haiku in the language of the request."""
    own = catalog_for(Language.CHINESE if action.chinese else Language.ENGLISH)
    named = (name for name, about in _HAIKU_TOPICS if about.search(action.topic))
    lines = own(f"offline.haiku.{next(named, 'any')}")
    content = f"# {action.topic}\n\n{lines}" if action.topic else lines
    return _ProducedContent(
        content=content, message=f"{words('offline.template')}\n\n{_fenced(content)}"
    )


async def _list_folder(path: str, context: ActionContext) -> _ProducedContent:
    entries, total = await asyncio.to_thread(folder.list_folder, _workspace(context), path)
    content = "\n".join(f"- {one.name}/" if one.is_folder else f"- {one.name}" for one in entries)
    name = _inline_code(path) if path != "." else context.words("offline.own_folder")
    head = context.words("offline.listed", n=total, path=name)
    return _ProducedContent(
        content=content or head, message=f"{head}\n\n{_fenced(content)}" if content else head
    )


async def _source_text(source: TextSource, context: ActionContext) -> str:
    match source:
        case LiteralText(text=text):
            return text
        case FileText(path=path):
            workspace = _workspace(context)
            return await asyncio.to_thread(folder.read_text, workspace, path, limit=MAX_READ)
        case EarlierOutput():
            return await _earlier_content(context)
    assert_never(source)


async def _earlier_content(context: ActionContext) -> str:
    """Reproduce the output of the last productive step; these actions are deterministic."""
    for at in range(len(context.earlier_actions) - 1, -1, -1):
        before = replace(context, earlier_actions=context.earlier_actions[:at])
        match context.earlier_actions[at]:
            case WriteFileAction(path=path):
                return await _source_text(FileText(path=path), before)
            case (
                HaikuAction()
                | SummariseAction()
                | CountAction()
                | ShowAction()
                | ListFolderAction() as produced
            ):
                return (await _produce(produced, before)).content
            case _:
                continue
    raise _ActionFailed(context.words("offline.nothing_before"))


def _workspace(context: ActionContext) -> Path:
    if context.workspace is None:
        raise _ActionFailed(context.words("offline.no_folder"))
    return context.workspace


def _exists(workspace: Path, path: str) -> bool:
    return (workspace / folder.resolve_path(workspace, path)).exists()


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _fenced(text: str) -> str:
    """Fence the text with more backticks than it contains."""
    text = _shorten(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _inline_code(path: str) -> str:
    return f"`{path.replace('`', '')}`"


_COUNT_KEYS = {
    TextUnit.WORDS: "offline.counted.words",
    TextUnit.LINES: "offline.counted.lines",
    TextUnit.CHARACTERS: "offline.counted.characters",
}
_HAIKU_TOPICS = (
    ("queue", re.compile(r"queue|wait|line\b|排队|队列|等", re.IGNORECASE)),
    ("work", re.compile(r"\bwork|task|job|office|todo|工作|任务|上班|待办", re.IGNORECASE)),
    ("rain", re.compile(r"rain|storm|雨", re.IGNORECASE)),
    ("code", re.compile(r"code|coding|program|software|bug|代码|程序|编程|软件", re.IGNORECASE)),
    ("moon", re.compile(r"moon|night|月|夜", re.IGNORECASE)),
    ("sea", re.compile(r"\bsea\b|ocean|wave|海|浪", re.IGNORECASE)),
)
