"""What running steps show of themselves. It lives as long as the run does: after a restart nothing
runs, and nothing is shown until a step is begun again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bot.engine.llm.events import (
    AgentEvent,
    Noted,
    PlanShown,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
)
from storage.records.live import Live, LiveCall
from storage.records.tasks import TaskId

_CALLS = 8
_NOTES = 5
_DIFF = 3_000
_OUTPUT = 500


class Progress:
    """`mask` takes secrets out of what tools are given and give back."""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._live: dict[TaskId, dict[str, Live]] = defaultdict(dict)
        self._moved: set[TaskId] = set()
        self._news = asyncio.Event()

    def watch(self, task: TaskId, path: str) -> Callable[[AgentEvent], Awaitable[None]]:
        """A step begins: what it has shown at an earlier try is gone."""
        self._live[task][path] = Live(path=path)

        async def heard(event: AgentEvent) -> None:
            self._hear(task, path, event)

        return heard

    def of(self, task: TaskId, path: str) -> Live | None:
        """What that step has shown so far."""
        return self._live.get(task, {}).get(path)

    def ended(self, task: TaskId, path: str) -> None:
        """That step is over."""
        self._live.get(task, {}).pop(path, None)

    def forget(self, task: TaskId) -> None:
        """Nobody works on it any more."""
        self._live.pop(task, None)
        self._moved.discard(task)

    async def moved(self) -> set[TaskId]:
        """Wait for something to show; those tasks whose cards are out of date, each once."""
        await self._news.wait()
        self._news.clear()
        moved, self._moved = self._moved, set()
        return moved

    def _hear(self, task: TaskId, path: str, event: AgentEvent) -> None:
        live = self.of(task, path)
        if live is None or isinstance(event, TextDelta | ThoughtDelta):
            return
        self._live[task][path] = self._with(live, event)
        self._moved.add(task)
        self._news.set()

    def _with(self, live: Live, event: AgentEvent) -> Live:
        match event:
            case PlanShown(entries=entries):
                plan = tuple((self._mask(entry.text), entry.status) for entry in entries)
                return replace(live, plan=plan)
            case ToolStarted(call_id=id, title=title):
                call = LiveCall(id=id, title=self._mask(title))
                others = tuple(each for each in live.calls if each.id != id)
                used = live.used + (len(others) == len(live.calls))
                return replace(live, calls=(*others, call)[-_CALLS:], used=used)
            case ToolUpdated(call_id=id, diff=diff, output=output):
                shown = {"diff": self._mask(diff)[:_DIFF], "output": self._mask(output)[-_OUTPUT:]}
                return _changed(live, id, **{key: text for key, text in shown.items() if text})
            case ToolFinished(call_id=id, good=good, summary=summary):
                told = {"output": self._mask(summary)[-_OUTPUT:]} if summary else {}
                return _changed(live, id, good=good, **told)
            case Noted(key=key, facts=facts):
                return replace(live, notes=(*live.notes, (key, facts))[-_NOTES:])
            case _:
                return live


def _changed(live: Live, id: str, **fields: object) -> Live:
    calls = tuple(
        replace(call, **fields) if call.id == id else call  # type: ignore[arg-type] # by name
        for call in live.calls
    )
    return replace(live, calls=calls)
