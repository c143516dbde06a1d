"""Cards of the self-check and of drive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import StartRepairTask
from cards.catalog import TextCatalog
from storage.records.self_checks import (
    CheckResult,
    HealthFinding,
    HealthGrade,
    HealthReport,
    Incident,
    IncidentNews,
    RepairOutcome,
)
from storage.records.tasks import Task

_MAX_FACT = 200
_MAX_TITLE = 60
_MAX_SHOWN = 12
_MAX_PROPOSED = 3
_SYMBOLS = {HealthGrade.GOOD: "✅", HealthGrade.WARN: "⚠️", HealthGrade.FAIL: "❌"}
_TONES = {
    HealthGrade.GOOD: model.CardTone.GOOD,
    HealthGrade.WARN: model.CardTone.WARN,
    HealthGrade.FAIL: model.CardTone.BAD,
}


def finding_text(finding: HealthFinding, words: TextCatalog) -> str:
    return _fill(f"self.found.{finding.text}", finding, words)


def next_step_text(finding: HealthFinding, words: TextCatalog) -> str:
    return _fill(f"self.next.{finding.text}", finding, words)


def repair_title(incident: Incident, words: TextCatalog) -> str:
    return words("self.task_title", problem=_plain(finding_text(incident.finding, words)))


def repair_instruction(incident: Incident, words: TextCatalog) -> str:
    """The instruction of the task that an owner may have made for a problem."""
    return words(
        "self.task_instruction",
        problem=finding_text(incident.finding, words),
        advice=next_step_text(incident.finding, words),
    )


def diagnosis_title(incidents: Sequence[Incident], words: TextCatalog) -> str:
    return words("self.diagnosis_title", n=len(incidents))


def diagnosis_instruction(incidents: Sequence[Incident], words: TextCatalog) -> str:
    """The instruction of the task that drive makes for serious problems."""
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
    lines += [_repair_line(each, words) for each in report.repairs]
    if worse:
        title, tone = words("self.problems", n=len(worse)), _TONES[report.grade]
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
    """The score of each check, then what they found."""
    heads = [_result_head(each, words) for each in report.results]
    found = [line for each in report.results for line in _finding_lines(each, words)]
    found += [_repair_line(each, words) for each in report.repairs]
    return model.titled_card(
        words("self.report", score=report.score, grade=words(f"self.grade.{report.grade}")),
        model.TextBlock(" · ".join(heads)),
        *((model.TextBlock("\n".join(found)),) if found else ()),
        model.NoteBlock(words("self.report_note", at=formats.date_time(report.at, zone))),
        tone=_TONES[report.grade],
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
            symbol=_SYMBOLS[report.grade],
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
                        "next": next_step_text(found, words),
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


def _repair_line(repair: RepairOutcome, words: TextCatalog) -> str:
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
    head = f"{_SYMBOLS[result.grade]} {words(f'self.check.{result.name}')}"
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
