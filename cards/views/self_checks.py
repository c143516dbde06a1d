"""Renders cards of the self-check, the drive and the doctor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import ProveButtons, StartRepairTask
from cards.catalog import TextCatalog
from storage.records.autonomy import (
    CheckResult,
    DriveStatus,
    GoalState,
    GoalStatus,
    HealthFinding,
    HealthGrade,
    HealthReport,
    Incident,
    IncidentNews,
    RepairOutcome,
)
from storage.records.schedules import Firing, FiringState
from storage.records.tasks import Task
from storage.records.usage import SpendingCap

# --- the self-check and drive

_MAX_FACT = 200
_MAX_TITLE = 60
_MAX_SHOWN = 12
_MAX_PROPOSED = 3
GRADE_SYMBOLS = {HealthGrade.GOOD: "✅", HealthGrade.WARN: "⚠️", HealthGrade.FAIL: "❌"}
GRADE_TONES = {
    HealthGrade.GOOD: model.CardTone.GOOD,
    HealthGrade.WARN: model.CardTone.WARN,
    HealthGrade.FAIL: model.CardTone.BAD,
}
_MAX_NOTE = 120
_FIRING_SYMBOLS = {FiringState.DONE: "✅", FiringState.FAILED: "❌", FiringState.STARTED: "⏳"}


def finding_text(finding: HealthFinding, words: TextCatalog) -> str:
    return _fill(f"self.found.{finding.text}", finding, words)


def next_step_text(finding: HealthFinding, words: TextCatalog) -> str:
    return _fill(f"self.next.{finding.text}", finding, words)


def repair_title(incident: Incident, words: TextCatalog) -> str:
    return words("self.task_title", problem=_plain(finding_text(incident.finding, words)))


def repair_instruction(incident: Incident, words: TextCatalog) -> str:
    """The instruction of the task that an owner may create for a problem."""
    return words(
        "self.task_instruction",
        problem=finding_text(incident.finding, words),
        advice=next_step_text(incident.finding, words),
    )


def diagnosis_title(incidents: Sequence[Incident], words: TextCatalog) -> str:
    return words("self.diagnosis_title", n=len(incidents))


def diagnosis_instruction(incidents: Sequence[Incident], words: TextCatalog) -> str:
    """The instruction of the task that the drive creates for serious problems."""
    lines = [
        f"- {finding_text(each.finding, words)} → {next_step_text(each.finding, words)}"
        for each in incidents
    ]
    return words("self.diagnosis_instruction", problems="\n".join(lines))


def incidents_card(
    news: Sequence[tuple[IncidentNews, Incident]], report: HealthReport, words: TextCatalog
) -> model.Card:
    """The changes since owners were last told."""
    worse = [each for each in news if each[0] is not IncidentNews.RECOVERED]
    lines = [_news_line(*each, words) for each in news[:_MAX_SHOWN]]
    if len(news) > _MAX_SHOWN:
        lines.append(words("self.more", n=len(news) - _MAX_SHOWN))
    lines += [repair_line(each, words) for each in report.repairs]
    if worse:
        title, tone = words("self.problems", n=len(worse)), GRADE_TONES[report.grade]
    elif news:
        title, tone = words("self.recovered", n=len(news)), model.CardTone.GOOD
    else:
        title, tone = words("self.repaired"), model.CardTone.INFO
    blocks: list[model.Block] = [model.TextBlock("\n".join(lines))]
    proposed = [each for _, each in worse if each.finding.asks_task and not each.task_id]
    for incident in proposed[:_MAX_PROPOSED]:
        blocks += _proposal_blocks(incident, words)
    blocks.append(model.NoteBlock(words("self.told_note", score=report.score)))
    summary = _plain(finding_text((worse or news)[0][1].finding, words)) if news else title
    return model.titled_card(title, *blocks, tone=tone, summary=f"{title}: {summary}")


def health_report_card(report: HealthReport, words: TextCatalog, *, zone: ZoneInfo) -> model.Card:
    """The score of each check, then the findings."""
    heads = [_result_head(each, words) for each in report.results]
    found = [line for each in report.results for line in _finding_lines(each, words)]
    found += [repair_line(each, words) for each in report.repairs]
    return model.titled_card(
        words("self.report", score=report.score, grade=words(f"self.grade.{report.grade}")),
        model.TextBlock(" · ".join(heads)),
        *((model.TextBlock("\n".join(found)),) if found else ()),
        model.NoteBlock(words("self.report_note", at=formats.date_time(report.at, zone))),
        tone=GRADE_TONES[report.grade],
    )


def self_card(
    report: HealthReport | None, open_: Sequence[Incident], drive: str, words: TextCatalog
) -> model.Card:
    """One line each for health and drive; `drive` is its line."""
    if report is None:
        health = words("self.health_unknown")
    else:
        health = words(
            "self.health_line",
            symbol=GRADE_SYMBOLS[report.grade],
            grade=words(f"self.grade.{report.grade}"),
            score=report.score,
            problems=words("self.open_problems", n=len(open_)),
        )
    lines = [health, drive]
    lines += [f"- {finding_text(each.finding, words)}" for each in open_[:_MAX_SHOWN]]
    return model.titled_card(
        words("self.title"),
        model.TextBlock("\n".join(lines)),
        model.NoteBlock(words("self.note")),
    )


def incident_history_card(
    incidents: Sequence[Incident], words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    rows = [_history_row(each, words, zone) for each in incidents]
    return model.titled_card(
        words("self.history"), model.TextBlock("\n".join(rows) or words("self.history_empty"))
    )


def repair_started_card(incident: Incident, task: Task | None, words: TextCatalog) -> model.Card:
    problem = finding_text(incident.finding, words)
    if task is None:
        return model.notice_card("", words("self.repair_over", problem=problem))
    return model.notice_card(
        "", words("self.repair_started", problem=problem, id=task.id), tone=model.CardTone.GOOD
    )


def report_data(report: HealthReport, words: TextCatalog) -> Mapping[str, Any]:
    return {
        "at": report.at.isoformat(),
        "score": report.score,
        "grade": report.grade.value,
        "checks": [
            {
                "name": each.name,
                "score": each.score,
                "grade": each.grade.value,
                "findings": [
                    {
                        "kind": found.text,
                        "subject": found.subject,
                        "points": found.points,
                        "text": finding_text(found, words),
                        "next": next_step_text(found, words) if found.points else "",
                    }
                    for found in each.findings
                ],
            }
            for each in report.results
        ],
        "repairs": {each.repair: each.count for each in report.repairs},
    }


def incident_data(incident: Incident, words: TextCatalog) -> Mapping[str, Any]:
    ended: datetime | None = incident.ended_at
    return {
        "id": incident.id,
        "key": incident.key,
        "text": finding_text(incident.finding, words),
        "opened_at": incident.opened_at.isoformat(),
        "ended_at": None if ended is None else ended.isoformat(),
        "reopened": incident.reopened,
        "task": incident.task_id,
    }


def _fill(key: str, finding: HealthFinding, words: TextCatalog) -> str:
    """Facts whose names end in `_key` are texts, those in `_bytes` sizes, others are foreign."""
    facts: dict[str, object] = {}
    for name, value in finding.facts.items():
        if isinstance(value, int):
            is_size = name.endswith("_bytes")
            facts[name.removesuffix("_bytes")] = formats.file_size(value) if is_size else value
        elif not name.endswith("_key"):
            facts[name] = formats.escape_markdown(value, _MAX_FACT)
    for name, value in finding.facts.items():
        if name.endswith("_key") and isinstance(value, str):
            facts[name.removesuffix("_key")] = _text_or_key(value, facts, words)
    return _text_or_key(key, facts, words)


def _text_or_key(key: str, facts: Mapping[str, object], words: TextCatalog) -> str:
    """A text whose facts do not fit, such as a stored one of another version, shows its key."""
    try:
        return words(key, **facts)
    except (KeyError, IndexError, ValueError):
        return f"`{formats.code_text(key, _MAX_FACT)}`"


def _plain(text: str) -> str:
    return formats.single_line(text.replace("**", "").replace("`", ""), _MAX_TITLE)


def _news_line(news: IncidentNews, incident: Incident, words: TextCatalog) -> str:
    problem = finding_text(incident.finding, words)
    if news is IncidentNews.RECOVERED:
        return f"- ✅ {words('self.news_recovered', problem=problem)}"
    line = f"- ❗ {words(f'self.news_{news}', problem=problem)}"
    return f"{line} → {next_step_text(incident.finding, words)}"


def repair_line(repair: RepairOutcome, words: TextCatalog) -> str:
    return f"- 🔧 {words(f'self.repair.{repair.repair}', n=repair.count)}"


def _proposal_blocks(incident: Incident, words: TextCatalog) -> Sequence[model.Block]:
    instruction = repair_instruction(incident, words)
    return (
        model.CollapsibleBlock(
            words("self.task_offer", problem=_plain(finding_text(incident.finding, words))),
            (model.CodeBlock(instruction),),
        ),
        model.ButtonsBlock(
            (model.CardButton(words("self.button_task"), StartRepairTask(incident_id=incident.id)),)
        ),
    )


def _result_head(result: CheckResult, words: TextCatalog) -> str:
    head = f"{GRADE_SYMBOLS[result.grade]} {words(f'self.check.{result.name}')}"
    return f"{head} {result.score}" if result.findings else head


def _finding_lines(result: CheckResult, words: TextCatalog) -> Sequence[str]:
    name = words(f"self.check.{result.name}")
    lines: list[str] = []
    for each in result.findings[:_MAX_SHOWN]:
        problem, advice = finding_text(each, words), next_step_text(each, words)
        lines.append(f"- **{name}** (−{each.points}): {problem} → {advice}")
    return lines


def _history_row(incident: Incident, words: TextCatalog, zone: ZoneInfo) -> str:
    ended = incident.ended_at
    until = words("self.lasts") if ended is None else formats.date_time(ended, zone)
    row = f"- {formats.date_time(incident.opened_at, zone)} – {until} · "
    row += finding_text(incident.finding, words)
    return f"{row} · `{incident.task_id}`" if incident.task_id else row


def drive_line(status: DriveStatus, words: TextCatalog) -> str:
    """One line about the drive for the overview."""
    if status.is_stopped:
        return words("self.drive_line_stopped")
    active = sum(each.state is GoalState.ON for each in status.goals)
    return words("self.drive_line", n=active, all=len(status.goals))


def drive_card(
    status: DriveStatus, words: TextCatalog, *, now: datetime, zone: ZoneInfo, news: str = ""
) -> model.Card:
    """The drive's goals and tasks. `news` is the text key of the change just made."""
    rows = [_goal_row(each, words, now, zone) for each in status.goals]
    blocks: list[model.Block] = [model.TextBlock("\n".join(rows))]
    if status.cap:
        blocks.append(model.TextBlock(_budget_text(status, words)))
    if status.tasks:
        tasks = "\n".join(_task_row(each, words) for each in status.tasks)
        blocks.append(model.TextBlock(f"**{words('self.drive_tasks')}**\n\n{tasks}"))
    blocks.append(model.NoteBlock(words("self.drive_note")))
    return model.titled_card(words(news or "self.drive_title"), *blocks)


def drive_data(status: DriveStatus) -> Mapping[str, Any]:
    return {
        "stopped": status.is_stopped,
        "goals": [
            {
                "name": each.name.value,
                "every_hours": each.every.total_seconds() / 3600,
                "state": each.state.value,
                "next_due": each.next_due.isoformat() if each.next_due else None,
                "last": each.last.state.value if each.last else None,
            }
            for each in status.goals
        ],
        "used_micros": status.used.micros,
        "used_tokens": status.used.tokens,
        "tasks": [each.id for each in status.tasks],
    }


def _goal_row(goal: GoalStatus, words: TextCatalog, now: datetime, zone: ZoneInfo) -> str:
    mark = "●" if goal.state is GoalState.ON else "○"
    every = words("self.every_hours", n=int(goal.every.total_seconds() // 3600))
    parts = [f"{mark} **{words(f'self.goal.{goal.name}')}** (`{goal.name}`)", every]
    if goal.state is not GoalState.ON:
        parts.append(words(f"self.goal_state.{goal.state}"))
    elif goal.next_due is not None:
        parts.append(words("self.goal_next", at=formats.date_time(goal.next_due, zone)))
    parts.append(_outcome(goal.last, words, now))
    row = " · ".join(parts)
    return f"- {row}"


def _outcome(last: Firing | None, words: TextCatalog, now: datetime) -> str:
    if last is None:
        return "—"
    ago = formats.time_ago(last.fired_at, now, words)
    text = f"{_FIRING_SYMBOLS.get(last.state, '—')} {ago}"
    if not last.note:
        return text
    return f"{text}: {formats.escape_markdown(words.get_or_literal(last.note), _MAX_NOTE)}"


def _budget_text(status: DriveStatus, words: TextCatalog) -> str:
    return words(
        "self.drive_budget",
        used=_amounts(status.used, status.cap),
        cap=_amounts(status.cap, status.cap),
    )


def _amounts(amount: SpendingCap, cap: SpendingCap) -> str:
    parts: list[str] = []
    if cap.micros:
        parts.append(formats.money(amount.micros))
    if cap.tokens:
        parts.append(formats.compact_number(amount.tokens))
    return " · ".join(parts)


def _task_row(task: Task, words: TextCatalog) -> str:
    title = formats.escape_markdown(task.title, _MAX_TITLE)
    return f"- `{task.id}` {title} · {words(f'status.{task.status}')}"


# --- the doctor: one line for each subject, fine or what to do


def doctor_card(report: HealthReport, words: TextCatalog, *, zone: ZoneInfo) -> model.Card:
    problems = sum(1 for each in report.results for found in each.findings if found.points)
    lines = [line for each in report.results for line in _lines(each, words)]
    lines += [repair_line(each, words) for each in report.repairs]
    return model.titled_card(
        words("doctor.title", n=problems) if problems else words("doctor.all_fine"),
        model.TextBlock("\n".join(lines)),
        model.ButtonsBlock((model.CardButton(words("doctor.button"), ProveButtons()),)),
        model.NoteBlock(words("doctor.note", at=formats.date_time(report.at, zone))),
        tone=GRADE_TONES[report.grade],
    )


def buttons_proven_text(milliseconds: int, words: TextCatalog) -> str:
    return words("doctor.proven", ms=milliseconds)


def _lines(result: CheckResult, words: TextCatalog) -> Sequence[str]:
    name = words(f"self.check.{result.name}")
    remarks = [finding_text(each, words) for each in result.findings if not each.points]
    problems = [each for each in result.findings if each.points]
    head = f"- {GRADE_SYMBOLS[result.grade]} **{name}**"
    if not problems:
        return (f"{head}: {' '.join(remarks) or words('doctor.fine')}",)
    lines = [
        f"{head}: {finding_text(each, words)} → {next_step_text(each, words)}"
        for each in problems[:_MAX_SHOWN]
    ]
    return (*lines, *(f"- {each}" for each in remarks))
