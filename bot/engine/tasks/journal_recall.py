"""Finds earlier tasks and their logs by keywords."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.engine.memory.ports import MemorySource, RecalledMemory
from bot.engine.tasks.access import TaskAccess
from cards.failure_texts import without_failure_texts
from storage.errors import AmbiguousId, NotFound
from storage.records.people import ChatId, Person, PersonId
from storage.records.task_logs import LogEntry, LogMatch
from storage.records.tasks import Task, TaskId
from storage.task_logs import TaskLogRepo
from storage.tasks import TaskRepo, TaskVisibility

MAX_KEYWORDS = 5

_WORD_RUN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]{2,}|[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9_]")
_MIN_LATIN_WORD = 3
_CHINESE_WORD_LENGTH = 2

_ENGLISH_STOP_WORDS = """
about after all also and any are ask back because been before but can could did does
doing done each file files find first for from get give had has have her here him his how into its
just know last let like line list look make many may more most must need new not now off one only
other our out over own per please put read save say see send she should show some take task tell
than that the their them then there these they this those through too two under use using very want
was well were what when where which who why will with work would write you your"""
_CHINESE_STOP_WORDS = """
帮我 请你 请帮 一下 一个 一首 一份 一些 一篇 关于 我们 你们 他们 这个 那个 这些 那些
什么 怎么 如何 为什么 可以 需要 应该 能够 进行 使用 通过 以及 或者 并且 然后 之后 以后 之前 现在
今天 任务 文件 内容 完成 保存 写到 保存到 没有 不要 不是 就是 所有 全部 其中 如果 因为 所以 但是
而且 还有 根据 按照 对于 的 了 和 与 及 或 在 到 把 将 给 从 是 请 帮 我 你 他 它 这 那 写 并 吗 呢
吧 啊"""
_STOP_WORDS = frozenset(_ENGLISH_STOP_WORDS.split())
_CHINESE_BREAKS = re.compile("|".join(sorted(_CHINESE_STOP_WORDS.split(), key=len, reverse=True)))


def extract_keywords(text: str, limit: int = MAX_KEYWORDS) -> tuple[str, ...]:
    """At most `limit` distinct keywords, in order."""
    found = dict.fromkeys(word for run in _WORD_RUN.findall(text) for word in _words_in_run(run))
    return tuple(found)[:limit]


def _words_in_run(run: str) -> Iterator[str]:
    if run.isascii():
        word = run.lower()
        if len(word) >= _MIN_LATIN_WORD and word not in _STOP_WORDS:
            yield word
        return
    for piece in _CHINESE_BREAKS.split(run):
        yield from _chinese_words(piece)


def _chinese_words(piece: str) -> Iterator[str]:
    """Character pairs: Chinese has no spaces, and most of its words have two characters."""
    while len(piece) >= _CHINESE_WORD_LENGTH:
        cut = len(piece) if len(piece) <= _CHINESE_WORD_LENGTH + 1 else _CHINESE_WORD_LENGTH
        yield piece[:cut]
        piece = piece[cut:]


_MAX_RECALLED = 5
_READ_FACTOR = 6
"""Logs read for each one recalled, because failures and repetitions are left out."""


async def recall_logs(logs: TaskLogRepo, access: TaskAccess, task: Task) -> Sequence[LogMatch]:
    """Logs of earlier tasks that everyone who sees the task may see, with at least half of its
    instruction's words."""
    words = extract_keywords(task.instruction)
    sight = await access.visibility_of(task)
    found = await logs.search_any_word(
        sight,
        words,
        _MAX_RECALLED * _READ_FACTOR,
        excluding=task.id,
        least=(len(words) + 1) // 2,
    )
    return _choose_telling(found, _MAX_RECALLED)


def _choose_telling(found: Sequence[LogMatch], limit: int) -> Sequence[LogMatch]:
    """The first `limit` that say something about the work, each text once."""
    telling: dict[str, LogMatch] = {}
    for each in found:
        if text := without_failure_texts(each.entry.text):
            kept = replace(each, entry=replace(each.entry, text=text))
            telling.setdefault(" ".join(text.casefold().split()), kept)
    return tuple(telling.values())[:limit]


_LOG_PREFIX = "log:"
_TASK_PREFIX = "task-"
_MAX_TITLE = 80
_MAX_ENTRIES = 20
_MAX_FILE_BYTES = 200_000
_MAX_QUERY = 1000
_NO_TASK = TaskId("")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMemories:
    """Creates `MemorySource`s over tasks and their logs."""

    logs: TaskLogRepo
    tasks: TaskRepo
    access: TaskAccess
    person_of: Callable[[PersonId], Awaitable[Person]]
    home: Path

    def for_reader(
        self, person: PersonId | None, chat: ChatId | None, task: TaskId | None
    ) -> MemorySource:
        return _ReaderTaskMemories(self, person, chat, task)

    async def list_helpful(self, task: Task) -> Sequence[str]:
        """Logs of earlier tasks that may help, one line each."""
        if not task.use_memory:
            return ()
        found = await recall_logs(self.logs, self.access, task)
        return [f"- {each.entry.kind}: {each.entry.text}" for each in found]


@dataclass(frozen=True, slots=True)
class _ReaderTaskMemories:
    """Implements `memory.ports.MemorySource`."""

    source: TaskMemories
    person: PersonId | None
    chat: ChatId | None
    task: TaskId | None

    async def search(self, query: str, limit: int) -> Sequence[RecalledMemory]:
        sight = await self._visibility()
        if sight is None:
            return ()
        query = query[:_MAX_QUERY]
        words = extract_keywords(query) or tuple(query.split())
        besides = self.task or _NO_TASK
        logs = await self.source.logs.search_any_word(
            sight, words, limit * _READ_FACTOR, excluding=besides
        )
        # One more, since the reader's own task is excluded.
        tasks = await self.source.logs.search_tasks(sight, words, limit + 1) if words else ()
        found = [_memory_of_entry(each) for each in _choose_telling(logs, limit)]
        found += [_memory_of_task(task) for task in tasks if task.id != self.task]
        return found[:limit]

    async def get(self, memory_id: str) -> RecalledMemory | None:
        sight = await self._visibility()
        if sight is None:
            return None
        name, _, number = memory_id.partition(":")
        if f"{name}:" == _LOG_PREFIX and number.isascii() and number.isdigit():
            found = await self.source.logs.find_visible(sight, int(number[:18]))
            return None if found is None else await self._with_file(found)
        try:
            task = await self.source.tasks.find(memory_id, sight)
        except (NotFound, AmbiguousId):
            return None
        entries = await self.source.logs.list_latest(task.id, _MAX_ENTRIES)
        return _memory_of_task(task, entries)

    async def _visibility(self) -> TaskVisibility | None:
        """A task's worker sees what everyone who sees the task may see; in a chat, what is visible
        there. None without a person."""
        if self.task is not None:
            return await self.source.access.visibility_of(await self.source.tasks.get(self.task))
        if self.person is None or self.chat is None:
            return None
        return await self.source.access.visibility_for(
            await self.source.person_of(self.person), self.chat
        )

    async def _with_file(self, found: LogMatch) -> RecalledMemory:
        kept = await asyncio.to_thread(self._read_text, found.entry.file)
        return _memory_of_entry(found, kept)

    def _read_text(self, file: str) -> str:
        """Text of a log too long for a line; empty for other files."""
        logs = (self.source.home / "files" / "logs").resolve()
        path = (self.source.home / file).resolve()
        if not file.endswith(".md") or not path.is_relative_to(logs):
            return ""
        try:
            with path.open("rb") as kept:
                return kept.read(_MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""


def _memory_of_entry(found: LogMatch, whole: str = "") -> RecalledMemory:
    entry = found.entry
    file = f"\n[file: {Path(entry.file).name}]" if entry.file and not whole else ""
    return RecalledMemory(
        id=f"{_LOG_PREFIX}{entry.id}",
        title=f"{entry.kind} of {_TASK_PREFIX}{found.task.id} {found.task.title[:_MAX_TITLE]}",
        text=whole or entry.text + file,
        at=entry.at,
    )


def _memory_of_task(task: Task, entries: Sequence[LogEntry] = ()) -> RecalledMemory:
    lines = [f"Asked: {task.instruction}"]
    if task.summary:
        lines.insert(0, f"Came of it: {task.summary}")
    lines += [f"- {_LOG_PREFIX}{each.id} {each.kind}: {each.text}" for each in entries]
    return RecalledMemory(
        id=f"{_TASK_PREFIX}{task.id}",
        title=f"{task.status} task {task.title[:_MAX_TITLE]}",
        text="\n".join(lines),
        at=task.created_at,
    )
