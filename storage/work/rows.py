"""A task as a row, both ways."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Row

from storage.records.people import ChatId, PersonId
from storage.records.tasks import (
    Control,
    NewTask,
    Phase,
    Priority,
    Task,
    TaskId,
    TaskStatus,
)


def new_row(new: NewTask, id: TaskId, now: datetime) -> dict[str, Any]:
    return {
        "id": id,
        "source": new.source,
        "title": new.title,
        "instruction": new.instruction,
        "priority": new.priority,
        "rank": new.priority.rank,
        "status": TaskStatus.PENDING,
        "phase": Phase.QUEUED,
        "control": Control.RUN,
        "chat_id": new.chat_id,
        "reply_to": new.reply_to,
        "created_by": new.created_by,
        "project_dir": new.project_dir,
        "model": new.model,
        "backend": new.backend,
        "persona": new.persona,
        "files": list(new.files),
        "branch": f"shiftboss/{id}" if new.in_git else "",
        "outside": new.outside,
        "created_at": now,
        "waiting_since": now,
    }


def task_of(row: Row[Any]) -> Task:
    return Task(
        id=TaskId(row.id),
        title=row.title,
        instruction=row.instruction,
        priority=Priority(row.priority),
        status=TaskStatus(row.status),
        status_reason=row.status_reason,
        phase=Phase(row.phase),
        control=Control(row.control),
        chat_id=ChatId(row.chat_id),
        reply_to=row.reply_to,
        created_by=PersonId(row.created_by),
        project_dir=row.project_dir,
        model=row.model,
        backend=row.backend,
        files=tuple(row.files),
        graph_version=row.graph_version,
        epoch=row.epoch,
        failures_in_row=row.failures_in_row,
        replans=row.replans,
        summary=row.summary,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        rank=row.rank,
        errors=row.errors,
        branch=row.branch,
        holds_dir=row.holds_dir,
        let_in=row.let_in,
        outside=row.outside,
        stage=row.stage,
        tokens_before=row.tokens_before,
        persona=row.persona,
        wake_at=row.wake_at,
    )
