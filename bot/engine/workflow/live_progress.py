"""Live progress of running steps, in memory only: after a restart nothing runs, and nothing is
shown until a step starts again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bot.engine.llm.backend import (
    AgentEvent,
    PlanUpdated,
    RunNotice,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
)
from storage.records.tasks import LiveStep, LiveToolCall, TaskId

_MAX_CALLS = 8
_MAX_NOTES = 5
_MAX_DIFF = 3_000
_MAX_OUTPUT = 500


class LiveProgress:
    """`redact` removes secrets from the input and output of tools."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._live: dict[TaskId, dict[str, LiveStep]] = defaultdict(dict)
        self._changed_tasks: set[TaskId] = set()
        self._change_signal = asyncio.Event()

    def watch(self, task: TaskId, path: str) -> Callable[[AgentEvent], Awaitable[None]]:
        """Restart the progress of a step; the result receives its events."""
        self._live[task][path] = LiveStep(path=path)

        async def on_event(event: AgentEvent) -> None:
            live = self.live_step(task, path)
            if live is None or isinstance(event, TextDelta | ThoughtDelta):
                return
            self._live[task][path] = self._apply_event(replace(live, passing_note=None), event)
            self._changed_tasks.add(task)
            self._change_signal.set()

        return on_event

    def live_step(self, task: TaskId, path: str) -> LiveStep | None:
        return self._live.get(task, {}).get(path)

    def step_ended(self, task: TaskId, path: str) -> None:
        self._live.get(task, {}).pop(path, None)

    def forget_task(self, task: TaskId) -> None:
        self._live.pop(task, None)
        self._changed_tasks.discard(task)

    def mark_running(self) -> None:
        """Mark the cards of all running steps as out of date, because their clocks advance."""
        running = {task for task, steps in self._live.items() if steps}
        if running:
            self._changed_tasks |= running
            self._change_signal.set()

    async def wait_for_changes(self) -> set[TaskId]:
        """Wait until there are tasks whose cards are out of date, and return each once."""
        await self._change_signal.wait()
        self._change_signal.clear()
        changed, self._changed_tasks = self._changed_tasks, set()
        return changed

    def _apply_event(self, live: LiveStep, event: AgentEvent) -> LiveStep:
        match event:
            case PlanUpdated(entries=entries):
                plan = tuple((self._redact(entry.text), entry.status) for entry in entries)
                return replace(live, plan=plan)
            case ToolStarted(call_id=id, title=title):
                known = next((each for each in live.calls if each.id == id), None)
                call = replace(known or LiveToolCall(id=id, title=""), title=self._redact(title))
                others = tuple(each for each in live.calls if each.id != id)
                used = live.call_count + (len(others) == len(live.calls))
                return replace(live, calls=(*others, call)[-_MAX_CALLS:], call_count=used)
            case ToolUpdated(call_id=id, diff=diff, output=output):
                shown = {
                    "diff": self._redact(diff)[:_MAX_DIFF],
                    "output": self._redact(output)[-_MAX_OUTPUT:],
                }
                return _update_call(live, id, **{key: text for key, text in shown.items() if text})
            case ToolFinished(call_id=id, succeeded=succeeded, summary=summary):
                final = {"output": self._redact(summary)[-_MAX_OUTPUT:]} if summary else {}
                return _update_call(live, id, succeeded=succeeded, **final)
            case RunNotice():
                return _add_note(live, event)
            case _:
                return live


def _add_note(live: LiveStep, notice: RunNotice) -> LiveStep:
    note = (notice.key, notice.facts)
    if notice.passing:
        return replace(live, passing_note=note)
    return replace(live, notes=(*live.notes, note)[-_MAX_NOTES:])


def _update_call(live: LiveStep, id: str, **fields: object) -> LiveStep:
    calls = tuple(
        replace(call, **fields) if call.id == id else call  # type: ignore[arg-type] # by name
        for call in live.calls
    )
    return replace(live, calls=calls)
