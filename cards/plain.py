"""Facts as plain JSON values, for `Reply.data`: what programs read where people read a card.

Times are ISO 8601 in UTC, money is US dollars in millionths, names are those of the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from storage.records.approvals import Approval
from storage.records.logs import LogEntry
from storage.records.money import CapLeft
from storage.records.status import (
    BackendReport,
    CostLine,
    CostReport,
    ModelChoice,
    SystemStatus,
    TaskCost,
)
from storage.records.tasks import Eta, Rounds, Spent, Step, Task, TaskEvent, TaskPage, TaskView

Plain: TypeAlias = dict[str, Any]


def task_data(task: Task) -> Plain:
    return {
        "id": task.id,
        "title": task.title,
        "instruction": task.instruction,
        "priority": task.priority.value,
        "status": task.status.value,
        "reason": task.status_reason,
        "phase": task.phase.value,
        "stage": task.stage,
        "control": task.control.value,
        "self": task.outside,
        "errors": task.errors,
        "replans": task.replans,
        "summary": task.summary,
        "project_dir": task.project_dir,
        "branch": task.branch,
        "model": task.model,
        "backend": task.backend,
        "persona": task.persona,
        "files": list(task.files),
        "created_at": moment(task.created_at),
        "started_at": moment(task.started_at),
        "ended_at": moment(task.ended_at),
        "wake_at": moment(task.wake_at),
    }


def view_data(view: TaskView) -> Plain:
    """One task in full."""
    return {
        **task_data(view.task),
        "plan": view.plan,
        "steps": [step_data(step) for step in view.steps],
        "done": view.done,
        "total": view.total,
        "percent": view.percent,
        "ahead": view.ahead,
        "waits_for": view.holder.id if view.holder else None,
        "spent": spent_data(view.spent),
        "eta": eta_data(view.eta) if view.eta else None,
    }


def eta_data(eta: Eta) -> Plain:
    return {"seconds": round(eta.seconds), "confidence": eta.confidence, "steps": eta.steps}


def step_data(step: Step) -> Plain:
    return {
        "path": step.path,
        "title": step.title,
        "status": step.status.value,
        "summary": step.summary,
        "error": step.error,
        "kind": step.kind,
        "depth": step.depth,
        "branch": step.branch,
        "round": step.round,
        "rounds": rounds_data(step.rounds) if step.rounds else None,
        "way": list(step.way),
        "waits_for": list(step.waits_for) if step.asked else None,
        "until": moment(step.until),
        "persona": step.persona,
        "files": list(step.files),
        "started_at": moment(step.started_at),
        "ended_at": moment(step.ended_at),
    }


def rounds_data(rounds: Rounds) -> Plain:
    return {
        "done": rounds.done,
        "at": rounds.at,
        "total": rounds.total,
        "most": rounds.most,
        "failed": rounds.failed,
    }


def spent_data(spent: Spent) -> Plain:
    return {
        "calls": spent.calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_micros": spent.cost_micros,
        "unpriced": spent.unpriced,
        "cache_read_tokens": spent.cache_read_tokens,
        "cache_write_tokens": spent.cache_write_tokens,
    }


def cost_data(report: CostReport) -> Plain:
    query = report.query
    return {
        "period": query.period.value,
        "days": query.days,
        "model": query.model,
        "whole": spent_data(report.whole),
        "today": spent_data(report.today),
        "week": spent_data(report.week),
        "month": spent_data(report.month),
        "models": _lines(report.models),
        "purposes": _lines(report.purposes),
        "chats": _lines(report.chats),
        "people": _lines(report.people),
        "caps": _caps(report.caps),
        "unseen": list(report.unseen),
    }


def task_cost_data(cost: TaskCost) -> Plain:
    return {
        "task": cost.task.id,
        "whole": spent_data(cost.whole),
        "models": _lines(cost.models),
        "purposes": _lines(cost.purposes),
        "caps": _caps(cost.caps),
        "unseen": list(cost.unseen),
    }


def _lines(lines: Iterable[CostLine]) -> list[Plain]:
    return [{"name": line.name, **spent_data(line.spent)} for line in lines]


def _caps(caps: Iterable[CapLeft]) -> list[Plain]:
    return [
        {
            "scope": each.scope.value,
            "allowed_micros": each.allowed.micros,
            "allowed_tokens": each.allowed.tokens,
            "used_micros": each.used.micros,
            "used_tokens": each.used.tokens,
            "granted_micros": each.granted.micros,
            "granted_tokens": each.granted.tokens,
        }
        for each in caps
    ]


def page_data(page: TaskPage) -> Plain:
    return {"tasks": [task_data(task) for task in page.tasks], "total": page.total}


def event_data(event: TaskEvent) -> Plain:
    return {"kind": event.kind.value, "text": event.text, "at": moment(event.at)}


def events_data(task: Task, events: Iterable[TaskEvent]) -> Plain:
    return {"id": task.id, "events": [event_data(event) for event in events]}


def log_data(entry: LogEntry) -> Plain:
    return {
        "id": entry.id,
        "task": entry.task_id,
        "kind": entry.kind.value,
        "text": entry.text,
        "stage": entry.stage,
        "attempt": entry.attempt,
        "file": entry.file,
        "at": moment(entry.at),
    }


def approval_data(approval: Approval) -> Plain:
    return {
        "id": approval.id,
        "kind": approval.kind.value,
        "state": approval.state.value,
        "task": approval.task_id,
        "title": approval.title,
        "detail": approval.detail,
        "reason": approval.reason,
        "created_at": moment(approval.created_at),
        "expires_at": moment(approval.expires_at),
        "decided_at": moment(approval.decided_at),
        "decided_by": approval.decided_by,
    }


def approvals_data(waiting: Iterable[Approval]) -> Plain:
    return {"approvals": [approval_data(each) for each in waiting]}


def status_data(status: SystemStatus) -> Plain:
    return {
        "version": status.version,
        "pid": status.pid,
        "started_at": moment(status.started_at),
        "memory_bytes": status.memory_bytes,
        "unnamed_owner": status.unnamed_owner,
        "model": _model(status.model),
        "channels": [
            {"channel": each.channel.value, "alert": each.alert} for each in status.channels
        ],
        "slots": status.slots,
        "tasks": {kind.value: many for kind, many in status.counts.items()},
        "today": status.today,
        "waiting_approvals": status.waiting_approvals,
        "queued_messages": status.queued_messages,
        "recent": [task_data(task) for task in status.recent],
        "sandbox": status.sandbox,
    }


def backends_data(report: BackendReport, told: Mapping[str, str]) -> Plain:
    """`told` says by name what each one lacks and how to get it."""
    return {
        "default": report.default,
        "fallback": report.fallback,
        "faults": list(report.faults),
        "backends": [
            {
                "name": backend.name,
                "ready": not backend.problem,
                "problem": backend.problem,
                "told": told.get(backend.name, ""),
                "version": backend.version,
            }
            for backend in report.backends
        ],
    }


def moment(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


def _model(choice: ModelChoice) -> Plain:
    return {"name": choice.name, "ready": not choice.problem}
