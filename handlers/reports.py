"""Handles /report: work done, work waiting, costs, and scheduled reports."""

from __future__ import annotations

from cards.views.reports import (
    cost_trend_card,
    report_card,
    report_data,
    reports_stopped_card,
    scheduled_report_card,
    trend_card,
)
from handlers.errors import UsageError
from handlers.request import CommandRegistry, Reply, Request
from storage.records.autonomy import ReportPeriod
from storage.records.schedules import CronTiming

commands = CommandRegistry("system")

_PERIOD_WORDS = {
    **dict.fromkeys(("", "day", "today", "日", "日报", "今天"), ReportPeriod.DAY),
    **dict.fromkeys(("week", "周", "周报", "本周"), ReportPeriod.WEEK),
    **dict.fromkeys(("month", "月", "月报", "本月"), ReportPeriod.MONTH),
}
_TREND_CARDS = {
    **dict.fromkeys(("trend", "趋势"), trend_card),
    **dict.fromkeys(("cost", "costs", "费用", "花费"), cost_trend_card),
}
_CADENCES = {
    **dict.fromkeys(("daily", "每日", "每天"), (ReportPeriod.DAY, "daily 18:00")),
    **dict.fromkeys(("weekly", "每周"), (ReportPeriod.WEEK, "weekly mon 9:00")),
}
_STOP_WORDS = ("off", "stop", "关", "关闭", "停止")


@commands("report", aliases=("reports", "报告", "日报"))
async def report(request: Request) -> Reply:
    words = request.args.split()
    first = words[0].casefold() if words else ""
    if period := _PERIOD_WORDS.get(first):
        return await show_report(request, period)
    if first in _TREND_CARDS:
        return await _show_trend(request, first)
    if first in _STOP_WORDS:
        stopped = await request.services.reports.stop(by=request.person, chat=request.chat.id)
        card = reports_stopped_card(len(stopped), request.words)
        return Reply(card=card, data={"stopped": len(stopped)})
    for word, (period, usual) in _CADENCES.items():
        if first.startswith(word):
            return await _schedule(request, period, request.args if request.args != word else usual)
    raise UsageError("report")


async def show_report(request: Request, period: ReportPeriod) -> Reply:
    reports = request.services.reports
    found = await reports.report(period, by=request.person, chat=request.chat.id, until=request.now)
    pictures = await reports.draw(found, request.words.language)
    card = report_card(found, pictures, request.words, zone=request.zone)
    return Reply(card=card, data=report_data(found))


async def _show_trend(request: Request, word: str) -> Reply:
    reports = request.services.reports
    found = await reports.report(
        ReportPeriod.MONTH, by=request.person, chat=request.chat.id, until=request.now
    )
    pictures = await reports.draw(found, request.words.language)
    return Reply(card=_TREND_CARDS[word](found, pictures, request.words), data=report_data(found))


async def _schedule(request: Request, period: ReportPeriod, text: str) -> Reply:
    if not request.in_private:
        # Others get it too.
        request.require_owner()
    timing = request.services.schedules.read_timing(_joined(text))
    if not isinstance(timing, CronTiming) or timing.times:
        raise UsageError("report")
    title = request.words(f"report.title_{period}")
    made = await request.services.reports.schedule(
        period, timing, title=title, by=request.person, chat=request.chat.id
    )
    card = scheduled_report_card(made, request.words)
    next_due = made.next_due.isoformat() if made.next_due else None
    return Reply(card=card, data={"id": made.id, "period": period.value, "next": next_due})


def _joined(text: str) -> str:
    """Join a weekday to its prefix, `每周 一 9:00` to `每周一 9:00`, as times are parsed."""
    head, _, rest = text.strip().partition(" ")
    return f"{head}{rest}" if head == "每周" else text.strip()
