"""Renders reports on past work. Titles come from others, so they are escaped and shortened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import ListApprovals, RetryTask, ShowReport
from cards.catalog import TextCatalog
from cards.views.schedules import due_text
from cards.views.timings import timing_text
from storage.records.autonomy import (
    DayFigures,
    EndedTask,
    Finding,
    FindingKind,
    ReportPeriod,
    ReportPictures,
    StepFigures,
    WaitingItem,
    WorkReport,
)
from storage.records.schedules import Schedule
from storage.records.tasks import TaskStatus

_MAX_TITLE = 60
_SYMBOLS = {
    TaskStatus.COMPLETED: "✅",
    TaskStatus.FAILED: "❌",
    TaskStatus.CANCELLED: "⏹",
}
_TIPS = (
    FindingKind.COSTLY_STEP,
    FindingKind.RETRY_WASTE,
    FindingKind.SKIPPED_STEP,
    FindingKind.BATCH,
)
_REQUESTS = {"approval", "question"}
_BARS = "·▁▂▃▄▅▆▇█"
_MIN_STEPS = 5
"""Steps below which bars by hour say nothing."""
_WEEK = 7
_PERCENT = 100


def report_card(
    report: WorkReport,
    pictures: ReportPictures,
    words: TextCatalog,
    *,
    zone: ZoneInfo,
    is_scheduled: bool = False,
) -> model.Card:
    """A report. If nothing happened, one sentence and the waiting work."""
    title = words(f"report.title_{report.period}")
    blocks: list[model.Block] = []
    if report.is_quiet:
        blocks.append(model.TextBlock(words(f"report.nothing_{report.period}")))
        blocks += _waiting_blocks(report, words)
    else:
        blocks += _done_blocks(report, words)
        blocks += _waiting_blocks(report, words)
        blocks += _schedule_blocks(report, words, zone)
        blocks += _cost_blocks(report, words)
        blocks += _step_blocks(report, words)
        blocks += _finding_blocks(report, words)
        blocks += _picture_blocks(report, pictures, words)
        if sum(report.counts.values()) > report.sampled_tasks:
            blocks.append(model.NoteBlock(words("report.sampled", n=report.sampled_tasks)))
        since, until = (formats.date_time(each, zone) for each in (report.since, report.until))
        blocks.append(model.NoteBlock(words("report.span", since=since, until=until)))
    if is_scheduled:
        blocks.append(model.NoteBlock(words("report.turn_off")))
    blocks.append(_buttons(report, words))
    return model.titled_card(f"📊 {title}", *blocks, summary=_summary(title, report, words))


def trend_card(report: WorkReport, pictures: ReportPictures, words: TextCatalog) -> model.Card:
    """Tasks and cost of the last weeks, with pictures of the last 30 days."""
    title = words("report.title_trend")
    if report.is_quiet:
        return model.titled_card(f"📈 {title}", model.TextBlock(words("report.nothing_trend")))
    columns = ("week_from", "column_done", "column_failed", "column_cost")
    rows = tuple(_week_row(week) for week in _weeks(report.days))
    return model.titled_card(
        f"📈 {title}",
        model.TableBlock(tuple(words(f"report.{each}") for each in columns), rows),
        *_finding_blocks(report, words),
        *_picture_blocks(report, pictures, words),
        summary=_summary(title, report, words),
    )


def cost_trend_card(report: WorkReport, pictures: ReportPictures, words: TextCatalog) -> model.Card:
    title = words("report.title_cost")
    if report.is_quiet:
        return model.titled_card(f"💰 {title}", model.TextBlock(words("report.nothing_trend")))
    mean = formats.money(report.spent.cost_micros // report.period.days)
    blocks = [*_cost_blocks(report, words), model.TextBlock(words("report.per_day", cost=mean))]
    if report.costliest:
        rows = "\n".join(_task_row(each, report, words) for each in report.costliest)
        blocks += _section(words("report.costliest"), rows)
    return model.titled_card(
        f"💰 {title}",
        *blocks,
        *_finding_blocks(report, words),
        *_picture_blocks(report, ReportPictures(cost=pictures.cost), words),
        summary=_summary(title, report, words),
    )


def scheduled_report_card(schedule: Schedule, words: TextCatalog) -> model.Card:
    timing = timing_text(schedule.timing, words, ZoneInfo(schedule.zone))
    title = words("report.scheduled", title=schedule.title, timing=timing)
    blocks: list[model.Block] = []
    if schedule.next_due is not None:
        at = due_text(schedule.next_due, schedule, words)
        blocks.append(model.TextBlock(words("report.scheduled_next", at=at)))
    blocks.append(model.NoteBlock(words("report.turn_off")))
    return model.titled_card(title, *blocks)


def reports_stopped_card(number: int, words: TextCatalog) -> model.Card:
    return model.notice_card("", words("report.stopped" if number else "report.stopped_none"))


def report_data(report: WorkReport) -> Mapping[str, Any]:
    schedules = report.schedules
    return {
        "period": report.period.value,
        "since": report.since.isoformat(),
        "until": report.until.isoformat(),
        "tasks": {status.value: n for status, n in report.counts.items()},
        "tasks_before": {status.value: n for status, n in report.before.items()},
        "running": report.running,
        "ended": [_task_data(each, report) for each in report.ended],
        "costliest": [_task_data(each, report) for each in report.costliest],
        "waiting": [_plain_data(each) for each in report.waiting],
        "waiting_count": report.waiting_count,
        "schedules": {
            "fired": schedules.fired,
            "failed": schedules.failures,
            "next": [{"title": title, "at": at.isoformat()} for title, at in schedules.upcoming],
        },
        "cost_micros": report.spent.cost_micros,
        "cost_micros_before": report.spent_before.cost_micros,
        "tokens": report.spent.tokens,
        "days": [_plain_data(each) for each in report.days],
        "heat": [list(row) for row in report.heat],
        "failing_steps": [_plain_data(each) for each in report.failing_steps],
        "slow_steps": [_plain_data(each) for each in report.slow_steps],
        "findings": [
            {"kind": each.kind.value, "subject": each.subject, "task": each.task_id, **each.figures}
            for each in report.findings
        ],
    }


def _task_data(task: EndedTask, report: WorkReport) -> Mapping[str, Any]:
    return {
        "id": task.id,
        "title": task.title,
        "status": task.status.value,
        "seconds": task.seconds,
        "cost_micros": report.costs.get(task.id),
    }


def _plain_data(record: WaitingItem | DayFigures | StepFigures) -> Mapping[str, Any]:
    """All fields, times as ISO 8601."""
    return {
        name: value.isoformat() if isinstance(value, date) else value
        for name, value in asdict(record).items()
    }


def _summary(title: str, report: WorkReport, words: TextCatalog) -> str:
    return words(
        "report.summary",
        title=title,
        done=report.counts.get(TaskStatus.COMPLETED, 0),
        failed=report.counts.get(TaskStatus.FAILED, 0),
        cost=formats.spent_cost(report.spent, words),
    )


def _section(heading: str, text: str) -> list[model.Block]:
    return [model.TextBlock(f"**{heading}**\n\n{text}")]


def _title(text: str) -> str:
    return formats.escape_markdown(text, _MAX_TITLE)


def _done_blocks(report: WorkReport, words: TextCatalog) -> list[model.Block]:
    numbers = [
        f"{_SYMBOLS[status]} {words(f'status.{status}')} {count}"
        for status in _SYMBOLS
        if (count := report.counts.get(status, 0))
    ]
    if report.running:
        numbers.append(words("report.running", n=report.running))
    lines = [" · ".join(numbers) or words("report.no_tasks"), ""]
    lines += [_task_row(each, report, words) for each in report.ended]
    left_out = sum(report.counts.values()) - len(report.ended)
    if left_out > 0:
        lines.append(f"- {words('report.more', n=left_out)}")
    return _section(words("report.done"), "\n".join(lines).strip())


def _task_row(task: EndedTask, report: WorkReport, words: TextCatalog) -> str:
    parts = [
        f"{_SYMBOLS.get(task.status, '')} `{task.id}` {_title(task.title)}",
        formats.duration(timedelta(seconds=task.seconds), words),
    ]
    if task.id in report.costs:
        parts.append(formats.money(report.costs[task.id]))
    return "- " + " · ".join(parts)


def _waiting_blocks(report: WorkReport, words: TextCatalog) -> list[model.Block]:
    if not report.waiting:
        return []
    rows = [_waiting_row(each, report.until, words) for each in report.waiting]
    left_out = report.waiting_count - len(report.waiting)
    if left_out > 0:
        rows.append(f"- {words('report.more', n=left_out)}")
    return _section(words("report.waits"), "\n".join(rows))


def _waiting_row(item: WaitingItem, until: datetime, words: TextCatalog) -> str:
    time = formats.duration(until - item.since, words)
    state = words("report.waits_row", kind=words(f"report.kind_{item.kind}"), time=time)
    return f"- `{item.id}` {_title(item.title)} · {state}"


def _schedule_blocks(report: WorkReport, words: TextCatalog, zone: ZoneInfo) -> list[model.Block]:
    figures = report.schedules
    if not (figures.fired or figures.failures or figures.upcoming):
        return []
    parts = [words("report.fired", n=figures.fired)]
    if figures.failures:
        titles = ", ".join(_title(each) for each in figures.failed)
        parts.append(words("report.fired_failed", n=figures.failures, titles=titles))
    rows = [" · ".join(parts), ""]
    rows += [
        f"- {words('report.next', title=_title(title), at=formats.date_time(at, zone))}"
        for title, at in figures.upcoming
    ]
    return _section(words("report.schedules"), "\n".join(rows).strip())


def _cost_blocks(report: WorkReport, words: TextCatalog) -> list[model.Block]:
    spent, before = report.spent, report.spent_before
    text = words(
        "report.cost_row",
        cost=formats.spent_cost(spent, words),
        tokens=formats.spent_tokens(spent, words),
    )
    if before.calls:
        facts = {"cost": formats.spent_cost(before, words)}
        change = 0.0
        if before.cost_micros and not (spent.unpriced or before.unpriced):
            change = (spent.cost_micros - before.cost_micros) / before.cost_micros
        if round(_PERCENT * change):
            trend = words("report.cost_change", change=_percent(change, signed=True), **facts)
        else:
            trend = words("report.cost_before", **facts)
        text = f"{text} · {trend}"
    return _section(words("report.cost"), text)


def _buttons(report: WorkReport, words: TextCatalog) -> model.ButtonsBlock:
    """Buttons to waiting and failed work on the card, and to the same report for other periods."""
    items = []
    if any(each.kind in _REQUESTS for each in report.waiting):
        items.append(model.CardButton(words("report.button_approvals"), ListApprovals()))
    failed = [each.id for each in report.ended if each.status is TaskStatus.FAILED]
    if failed:
        text = words("report.button_retry", n=len(failed))
        items.append(model.CardButton(text, RetryTask(task_id=failed[0], also=tuple(failed[1:]))))
    items += [
        model.CardButton(words(f"report.button_{period}"), ShowReport(period=period))
        for period in ReportPeriod
        if period is not report.period
    ]
    return model.ButtonsBlock(tuple(items))


def _percent(change: float, *, signed: bool = False) -> str:
    number = round(_PERCENT * change)
    return f"{number:+} %" if signed else f"{abs(number)} %"


def _step_blocks(report: WorkReport, words: TextCatalog) -> list[model.Block]:
    rows = [
        words(
            "report.step_failing",
            title=_title(each.title),
            done=each.runs - each.failed,
            n=each.runs,
            percent=each.success_percent,
        )
        for each in report.failing_steps
    ]
    rows += [
        words(
            "report.step_slow",
            title=_title(each.title),
            longest=_seconds(each.longest_seconds, words),
            mean=_seconds(each.mean_seconds, words),
            id=each.slowest_task,
            n=each.runs,
        )
        for each in report.slow_steps
    ]
    return _list_section("steps", rows, words)


def _finding_blocks(report: WorkReport, words: TextCatalog) -> list[model.Block]:
    news = [each for each in report.findings if each.kind not in _TIPS]
    tips = [each for each in report.findings if each.kind in _TIPS]
    return [
        *_list_section("notable", [_finding_text(each, words) for each in news], words),
        *_list_section("tips", [_finding_text(each, words) for each in tips], words),
    ]


def _list_section(key: str, rows: Sequence[str], words: TextCatalog) -> list[model.Block]:
    if not rows:
        return []
    return _section(words(f"report.{key}"), "\n".join(f"- {row}" for row in rows))


def _finding_text(finding: Finding, words: TextCatalog) -> str:
    figures = finding.figures
    facts: dict[str, object] = {
        "title": _title(finding.subject),
        "id": finding.task_id or "",
        "n": round(figures.get("number", 0)),
        "ran": round(figures.get("ran", 0)),
        "percent": round(figures.get("percent", 0)),
        "percent_before": round(figures.get("percent_before", 0)),
        "change": f"{abs(round(figures.get('percent', 0)))} %",
        "time": _seconds(figures.get("seconds", 0), words),
        "time_before": _seconds(figures.get("seconds_before", 0), words),
        "cost": formats.money(round(figures.get("micros", 0))),
        "cost_before": formats.money(round(figures.get("micros_before", 0))),
        "saved": formats.money(round(figures.get("saved_micros", 0))),
    }
    key = finding.kind.value
    match finding.kind:
        case FindingKind.DURATION:
            key = "duration_up" if figures["percent"] > 0 else "duration_down"
        case FindingKind.BATCH:
            key = f"batch_{finding.subject}"
        case FindingKind.DEGRADED:
            which = "time" if figures["time_percent"] >= figures["cost_percent"] else "cost"
            key, facts["change"] = f"degraded_{which}", f"{round(figures[f'{which}_percent'])} %"
    return words(f"report.finding.{key}", **facts)


def _seconds(seconds: float, words: TextCatalog) -> str:
    return formats.duration(timedelta(seconds=seconds), words)


def _picture_blocks(
    report: WorkReport, pictures: ReportPictures, words: TextCatalog
) -> list[model.Block]:
    """Each picture with its figures in words; bars of characters for the hours of a day."""
    blocks: list[model.Block] = []
    if report.period.days == 1:
        if sum(report.hours) >= _MIN_STEPS:
            blocks += [
                model.TextBlock(f"**{words('report.hours')}**"),
                model.CodeBlock(hour_bars(report.hours)),
            ]
        return blocks
    if pictures.heat:
        facts = _busiest(report, words)
        blocks += [
            model.ImageBlock(path=pictures.heat, alt=words("report.heat_alt", **facts)),
            model.NoteBlock(words("report.heat_note", **facts)),
        ]
    if pictures.cost:
        dearest = max(report.days, key=lambda each: each.micros)
        facts = {
            "total": formats.money(sum(each.micros for each in report.days)),
            "most": formats.money(dearest.micros),
            "day": f"{dearest.day:%m-%d}",
        }
        blocks += [
            model.ImageBlock(path=pictures.cost, alt=words("report.cost_alt", **facts)),
            model.NoteBlock(words("report.cost_note", **facts)),
        ]
    return blocks


def _busiest(report: WorkReport, words: TextCatalog) -> dict[str, object]:
    cells = [(day, hour) for day in range(_WEEK) for hour in range(24)]
    day, hour = max(cells, key=lambda cell: report.heat[cell[0]][cell[1]])
    weekday = words("schedule.weekdays").split()[day]
    return {"n": report.step_count, "day": weekday, "hour": hour}


def hour_bars(hours: Sequence[int]) -> str:
    """A bar for each hour, and a scale below."""
    most = max(hours) or 1
    top = len(_BARS) - 1
    bars = "".join(_BARS[-(-count * top // most)] for count in hours)
    scale = "".join(f"{hour:<6}" for hour in range(0, 24, 6))
    return f"{bars}\n{scale.rstrip()}"


def _weeks(days: Sequence[DayFigures]) -> Sequence[Sequence[DayFigures]]:
    """The last four periods of seven days, newest first."""
    whole = len(days) // _WEEK
    return [days[len(days) - _WEEK * (n + 1) : len(days) - _WEEK * n] for n in range(whole)]


def _week_row(days: Sequence[DayFigures]) -> tuple[str, ...]:
    return (
        f"{days[0].day:%m-%d}",
        str(sum(each.completed for each in days)),
        str(sum(each.failed for each in days)),
        formats.money(sum(each.micros for each in days)),
    )
