"""Converts records to plain JSON values for `Reply.data`.

Times are ISO 8601 in UTC, money is US dollars in millionths, names are those of the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeAlias

from storage.records.approvals import Approval
from storage.records.messages import ReceivedEvent
from storage.records.people import ChatMemory
from storage.records.processes import ProcessSituation
from storage.records.system import BackendReport, SystemStatus
from storage.records.task_logs import LogEntry
from storage.records.tasks import (
    LoopProgress,
    Task,
    TaskEta,
    TaskEvent,
    TaskPage,
    TaskStep,
    TaskView,
)
from storage.records.usage import CapUsage, CostLine, CostReport, TaskCost

JsonObject: TypeAlias = dict[str, Any]


def task_data(task: Task) -> JsonObject:
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
        "created_at": iso_timestamp(task.created_at),
        "started_at": iso_timestamp(task.started_at),
        "ended_at": iso_timestamp(task.ended_at),
        "wake_at": iso_timestamp(task.wake_at),
    }


def task_view_data(view: TaskView) -> JsonObject:
    """One task in full."""
    return {
        **task_data(view.task),
        "plan": view.plan,
        "steps": [step_data(step) for step in view.steps],
        "done": view.done,
        "total": view.total,
        "percent": view.percent,
        "ahead": view.tasks_ahead,
        "waits_for": view.directory_holder.id if view.directory_holder else None,
        "spent": asdict(view.spent),
        "eta": eta_data(view.eta) if view.eta else None,
        "workflow": _version_data(*view.workflow) if view.workflow else None,
        "subworkflows": [_version_data(*each) for each in view.subworkflows],
    }


def _version_data(name: str, version: int) -> JsonObject:
    return {"name": name, "version": version}


def eta_data(eta: TaskEta) -> JsonObject:
    return {"seconds": round(eta.seconds), "confidence": eta.confidence, "steps": eta.steps}


def step_data(step: TaskStep) -> JsonObject:
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
        "way": list(step.chosen_branches),
        "waits_for": list(step.awaited_names) if step.awaits_person else None,
        "until": iso_timestamp(step.waits_until),
        "persona": step.persona,
        "files": list(step.files),
        "values": dict(step.values),
        "started_at": iso_timestamp(step.started_at),
        "ended_at": iso_timestamp(step.ended_at),
    }


def rounds_data(rounds: LoopProgress) -> JsonObject:
    return {
        "done": rounds.done,
        "at": rounds.current,
        "total": rounds.total,
        "most": rounds.max_total,
        "failed": rounds.failed,
    }


def received_data(events: Sequence[ReceivedEvent]) -> JsonObject:
    """Without the texts of the messages, as this is often pasted into reports."""
    return {
        "events": [
            {
                "id": each.row.id,
                "kind": each.row.incoming.kind,
                "channel": each.row.incoming.place.channel.value,
                "chat": each.row.chat_id,
                "received_at": each.row.received_at.isoformat(),
                "state": each.row.state.value,
                "attempts": each.row.attempts,
                "outcome": each.row.outcome,
                "answer": each.answer.value if each.answer else None,
            }
            for each in events
        ]
    }


def cost_report_data(report: CostReport) -> JsonObject:
    query = report.query
    return {
        "period": query.period.value,
        "days": query.days,
        "model": query.model,
        "whole": asdict(report.total),
        "today": asdict(report.today),
        "week": asdict(report.week),
        "month": asdict(report.month),
        "models": _cost_lines(report.models),
        "purposes": _cost_lines(report.purposes),
        "chats": _cost_lines(report.chats),
        "people": _cost_lines(report.people),
        "caps": _caps_data(report.caps),
        "unseen": list(report.unpriced_models),
    }


def task_cost_data(cost: TaskCost) -> JsonObject:
    return {
        "task": cost.task.id,
        "whole": asdict(cost.total),
        "models": _cost_lines(cost.models),
        "purposes": _cost_lines(cost.purposes),
        "caps": _caps_data(cost.caps),
        "unseen": list(cost.unpriced_models),
    }


def _cost_lines(lines: Iterable[CostLine]) -> list[JsonObject]:
    return [{"name": line.name, **asdict(line.spent)} for line in lines]


def _caps_data(caps: Iterable[CapUsage]) -> list[JsonObject]:
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


def task_page_data(page: TaskPage) -> JsonObject:
    return {"tasks": [task_data(task) for task in page.tasks], "total": page.total}


def task_event_data(event: TaskEvent) -> JsonObject:
    return {"kind": event.kind.value, "text": event.text, "at": iso_timestamp(event.at)}


def task_events_data(task: Task, events: Iterable[TaskEvent]) -> JsonObject:
    return {"id": task.id, "events": [task_event_data(event) for event in events]}


def log_entry_data(entry: LogEntry) -> JsonObject:
    return {
        "id": entry.id,
        "task": entry.task_id,
        "kind": entry.kind.value,
        "text": entry.text,
        "stage": entry.stage,
        "attempt": entry.attempt,
        "file": entry.file,
        "at": iso_timestamp(entry.at),
    }


def approval_data(approval: Approval) -> JsonObject:
    return {
        "id": approval.id,
        "kind": approval.kind.value,
        "state": approval.state.value,
        "task": approval.task_id,
        "title": approval.title,
        "detail": approval.detail,
        "reason": approval.reason,
        "created_at": iso_timestamp(approval.created_at),
        "expires_at": iso_timestamp(approval.expires_at),
        "decided_at": iso_timestamp(approval.decided_at),
        "decided_by": approval.decided_by,
    }


def approvals_data(waiting: Iterable[Approval]) -> JsonObject:
    return {"approvals": [approval_data(each) for each in waiting]}


def status_data(status: SystemStatus, memory: ChatMemory) -> JsonObject:
    """`memory` is that of the chat that asks."""
    return {
        "memory": memory.value,
        "version": status.version,
        "pid": status.pid,
        "started_at": iso_timestamp(status.started_at),
        "memory_bytes": status.memory_bytes,
        "unnamed_owner": status.unlisted_owner,
        "model": {"name": status.model.name, "ready": not status.model.problem},
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
        "limits": status.limits,
        "command_user": status.command_user,
        "last_backup_at": iso_timestamp(status.backup.last_at) if status.backup else None,
        "disk": {each.kind: each.size for each in status.disk},
        "processes": [process_data(each) for each in status.processes],
        "waiting_homes": [
            {
                "place": each.place,
                "seen_at": iso_timestamp(each.seen_at),
                "asked_at": iso_timestamp(each.asked_at),
                "erasures": each.erasures,
            }
            for each in status.waiting_homes
        ],
    }


def backends_data(report: BackendReport, hints: Mapping[str, str]) -> JsonObject:
    """`hints` says by backend name how to fix its problem."""
    return {
        "default": report.default,
        "fallback": report.fallback,
        "faults": list(report.file_errors),
        "backends": [
            {
                "name": backend.name,
                "ready": not backend.problem,
                "problem": backend.problem,
                "told": hints.get(backend.name, ""),
                "version": backend.version,
            }
            for backend in report.backends
        ],
    }


def process_data(situation: ProcessSituation) -> JsonObject:
    process = situation.process
    return {
        "id": process.id,
        "name": process.name,
        "role": process.role.value,
        "host": process.host,
        "pid": process.pid,
        "version": process.version,
        "slots": process.slots,
        "abilities": dict(process.abilities),
        "draining": process.draining,
        "alive": process.is_alive(situation.store_now),
        "started_at": iso_timestamp(process.started_at),
        "seen_at": iso_timestamp(process.seen_at),
        "tasks": [{"id": task, "title": title} for task, title in situation.tasks],
        "services": list(situation.services),
    }


def iso_timestamp(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds")
