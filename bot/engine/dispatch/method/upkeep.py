"""Moving a task by hand: its stage, its end, what holds it up, and what was wrong about it."""

from __future__ import annotations

from bot.engine.dispatch import orders
from bot.engine.dispatch.method.ledger import Held, Ledger, refuse, runs_here
from handlers.services.notebook import BadValue, Field
from storage.records.logs import LogKind, NewLog
from storage.records.notebook import Closed, Staged
from storage.records.people import Person
from storage.records.tasks import Control, EventKind, Phase, Priority, Task, TaskStatus
from storage.usage import Bill

_LINE = 200
_TITLE = 80
_OUTSIDE = "outside"
_MORE_URGENT = (TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.PENDING)


class Upkeep(Ledger):
    async def stage(self, task: Task, text: str, *, by: Person, source: str) -> Staged:
        async with self._held(task, "stage", by, source) as held:
            moved = held.task
            if held.fresh:
                moved = await self._staged(held, text)
        return Staged(task=moved, urgent=await self._more_urgent(moved, by))

    async def finish(
        self,
        task: Task,
        *,
        by: Person,
        source: str,
        summary: str = "",
        tokens_now: int | None = None,
        force: bool = False,
    ) -> Closed:
        """Force ends also what has not begun, and takes what runs here from its worker."""
        async with self._held(task, "done", by, source) as held:
            before = held.task
            tokens = _used(before, tokens_now)
            logs = self._store.logs
            has_plan = bool(before.graph_version) or bool(
                await logs.count(before.id, LogKind.PLAN, tx=held.tx)
            )
            has_milestone = bool(await logs.count(before.id, LogKind.MILESTONE, tx=held.tx))
            already = held.fresh and before.status is TaskStatus.COMPLETED
            after = before
            if held.fresh and not already:
                after = await self._finished(held, summary, tokens, force=force)
        if runs_here(before) and held.fresh:
            self._tools.dispatcher.abort(task.id)
        return Closed(
            task=after,
            already=already,
            has_plan=has_plan,
            has_milestone=has_milestone,
            tokens=None if already else tokens,
        )

    async def block(self, task: Task, reason: str, *, by: Person, source: str) -> Task:
        async with self._held(task, "block", by, source) as held:
            if not held.fresh or held.task.status is TaskStatus.BLOCKED:
                return held.task
            if held.task.status.is_final or runs_here(held.task):
                raise refuse(held.task)
            await self._log(held, LogKind.BLOCKED, reason, by, source)
            await self._event(held, EventKind.BLOCKED, reason)
            return await self._store.tasks.move(
                held.tx,
                held.task,
                status=TaskStatus.BLOCKED,
                status_reason=reason,
                resumed_first=0,
                wake_at=None,
            )

    async def interrupt(self, task: Task, note: str, *, by: Person, source: str) -> Task:
        async with self._held(task, "interrupt", by, source) as held:
            if not held.fresh:
                return held.task
            order = orders.pause(held.task, note)
            await self._log(held, LogKind.CHECKPOINT, note, by, source)
            return await self._carry_out(held, order)

    async def snap_tokens(self, task: Task, tokens: int, *, by: Person, source: str) -> Task:
        async with self._held(task, "tokens", by, source) as held:
            if not held.fresh:
                return held.task
            return await self._store.tasks.move(held.tx, held.task, tokens_before=tokens)

    async def amend(self, task: Task, field: Field, value: str, *, by: Person, source: str) -> Task:
        async with self._held(task, "amend", by, source) as held:
            return await self._amended(held, field, value.strip()) if held.fresh else held.task

    async def delete(self, task: Task, *, by: Person, source: str) -> Task:
        """Its worktree goes after the commit; a crash in between has the order handled again."""
        async with self._held(task, "delete", by, source) as held:
            gone = held.task
            if held.fresh:
                gone = await self._deleted(held)
        await self._tools.drop(gone)
        return gone

    async def moved_by(self, source: str) -> Task | None:
        return await self._store.tasks.ordered_by(source)

    async def _deleted(self, held: Held) -> Task:
        gone = held.task
        if gone.status is TaskStatus.RUNNING:
            raise refuse(gone)
        if not gone.status.is_final:
            gone = await self._carry_out(held, orders.stop(gone, held.now))
        return await self._store.tasks.move(held.tx, gone, status=gone.status, deleted_at=held.now)

    async def _staged(self, held: Held, text: str) -> Task:
        await self._event(held, EventKind.NOTE, text[:_LINE])
        return await self._store.tasks.move(held.tx, held.task, stage=text[:_LINE])

    async def _finished(self, held: Held, summary: str, tokens: int | None, *, force: bool) -> Task:
        task = held.task
        begun = task.status is not TaskStatus.PENDING and not runs_here(task)
        if task.status.is_final or not (begun or force):
            raise refuse(task)
        await self._let_go(held, "done")
        if tokens:
            await self._tools.usage.add(held.tx, _bill(held, tokens))
        return await self._complete(held, summary)

    async def _complete(self, held: Held, summary: str) -> Task:
        await self._event(held, EventKind.COMPLETED, summary[:_LINE])
        return await self._store.tasks.move(
            held.tx,
            held.task,
            status=TaskStatus.COMPLETED,
            status_reason="",
            phase=Phase.ENDED,
            control=Control.RUN,
            summary=summary or held.task.summary,
            started_at=held.task.started_at or held.now,
            ended_at=held.now,
        )

    async def _amended(self, held: Held, field: Field, value: str) -> Task:
        tasks, task = self._store.tasks, held.task
        if not value:
            raise BadValue(field)
        match field:
            case Field.TITLE:
                await self._event(held, EventKind.NOTE, value[:_TITLE])
                return await tasks.move(held.tx, task, title=" ".join(value.split())[:_TITLE])
            case Field.STAGE:
                return await self._staged(held, value)
            case Field.PRIORITY:
                wanted = Priority.named(value)
                if wanted is None:
                    raise BadValue(field)
                return await self._carry_out(held, orders.reorder(task, wanted))
            case Field.INSTRUCTION:
                if task.status.is_final or runs_here(task):
                    raise refuse(task)
                return await tasks.move(held.tx, task, instruction=value)

    async def _more_urgent(self, task: Task, by: Person) -> Task | None:
        sight = await self._tools.rights.sight(by, task.chat_id)
        first = await self._store.logs.to_do(sight, _MORE_URGENT, 1)
        more = [each for each in first if each.priority.rank < task.priority.rank]
        return more[0] if more else None

    async def _log(self, held: Held, kind: LogKind, text: str, by: Person, source: str) -> None:
        new = NewLog(task_id=held.task.id, source=source, kind=kind, text=text, person_id=by.id)
        await self._store.logs.add(held.tx, new, now=held.now)


def _used(task: Task, tokens_now: int | None) -> int | None:
    """None where it is not known: no count taken before, or one from another session."""
    if tokens_now is None or task.tokens_before is None or tokens_now < task.tokens_before:
        return None
    return tokens_now - task.tokens_before


def _bill(held: Held, tokens: int) -> Bill:
    task = held.task
    return Bill(
        at=held.now,
        purpose=_OUTSIDE,
        backend=_OUTSIDE,
        model=_OUTSIDE,
        person_id=task.created_by,
        chat_id=task.chat_id,
        task_id=task.id,
        requests=1,
        input_tokens=tokens,
        output_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cost_micros=None,
    )
