"""/report: periods, trends, times at which it comes, and what the cards show."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cards.actions import ListApprovals, RetryTask, ShowReport
from cards.model import ButtonsBlock, ImageBlock, TextBlock
from handlers.request import Reply
from storage.records.autonomy import ReportPeriod, ScheduleFigures, WaitingItem
from storage.records.people import Language
from storage.records.schedules import CronTiming, OneTime
from storage.records.tasks import TaskId, TaskStatus, UsageTotals
from tests.builders import NOW, make_approval, make_task
from tests.fakes.reports import make_report
from tests.handlers.router_harness import RouterHarness, text_of

NOTHING = {
    "counts": {},
    "spent": UsageTotals(),
    "hours": (0,) * 24,
    "schedules": ScheduleFigures(),
    "waiting": (),
    "waiting_count": 0,
}


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("/report", ReportPeriod.DAY),
        ("/report day", ReportPeriod.DAY),
        ("/日报", ReportPeriod.DAY),
        ("/report WEEK", ReportPeriod.WEEK),
        ("/报告 周", ReportPeriod.WEEK),
        ("/report month", ReportPeriod.MONTH),
        ("/报告 月报", ReportPeriod.MONTH),
        ("/report trend", ReportPeriod.MONTH),
        ("/报告 费用", ReportPeriod.MONTH),
    ],
)
async def test_a_period_is_reported(text: str, period: ReportPeriod) -> None:
    desk = RouterHarness()

    await desk.send_message(text)

    assert desk.world.reports.asked == [(period, "ann", "c1", NOW)]


@pytest.mark.parametrize("language", list(Language))
async def test_a_card_has_the_figures_in_both_languages(language: Language) -> None:
    desk = RouterHarness(language=language)

    day = await desk.send_message("/report")
    week = await desk.send_message("/report week")
    trend = await desk.send_message("/report trend")
    cost = await desk.send_message("/report cost")

    for reply in (day, week):
        shown = text_of(reply)
        for part in ("k3m9qa", "p4used", "$0.4200", "$0.3000", "+40 %", "$0.0350", "News"):
            assert part in shown, part
    assert "·▂▄▆█" in text_of(day)
    assert _pictures(day) == []
    assert _pictures(week) == [f"files/reports/heat-{language}.png", "files/reports/c.png"]
    assert _pictures(trend) == _pictures(week)
    assert _pictures(cost) == ["files/reports/c.png"]
    assert "$0.0140" in text_of(cost), "the mean of 30 days"


async def test_an_equal_cost_has_no_change_beside_it() -> None:
    desk = RouterHarness()
    same = UsageTotals(calls=3, input_tokens=900, cost_micros=420_000)
    desk.world.reports.changes = {"spent": same, "spent_before": same}

    shown = text_of(await desk.send_message("/report"))

    assert "before: $0.4200" in shown
    assert "(+0" not in shown


async def test_titles_are_data() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("/report")

    assert reply.card is not None
    assert "](http" not in str(reply.card.blocks)
    assert "*minutes*" not in str(reply.card.blocks)


async def test_where_nothing_happened_one_sentence_says_so() -> None:
    desk = RouterHarness()
    desk.world.reports.changes = NOTHING

    reply = await desk.send_message("/report")

    assert reply.card is not None
    assert [type(each) for each in reply.card.blocks] == [TextBlock, ButtonsBlock]
    assert "Nothing happened" in text_of(reply)


async def test_buttons_lead_to_the_same_report_for_other_spans() -> None:
    desk = RouterHarness()
    shown = await desk.send_message("/report week")
    assert _actions(shown) == [
        ShowReport(period=ReportPeriod.DAY),
        ShowReport(period=ReportPeriod.MONTH),
    ]
    token = desk.world.post.token("reply:1", ShowReport)

    first, second = [await desk.press(token) for _ in range(2)]

    assert "Daily report" in text_of(first)
    assert text_of(second) == text_of(first), "a button that may be pressed again"


async def test_a_button_opens_the_approvals_that_wait() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = make_approval(approvers=("ann",))
    waiting = WaitingItem(kind="approval", id="ap7x2k", title="Delete the old logs", since=NOW)
    desk.world.reports.changes = {**NOTHING, "waiting": (waiting,), "waiting_count": 1}
    await desk.send_message("/report")

    opened = await desk.press(desk.world.post.token("reply:1", ListApprovals))

    assert "Delete the old logs" in text_of(opened)
    assert opened.card is not None
    assert opened.card.title.startswith("🔔")


async def test_a_button_retries_what_failed_and_still_can_be() -> None:
    ids = ("f1rst0", "s3cond", "th1rd0")
    desk = RouterHarness(*(make_task(each, TaskStatus.FAILED) for each in ids))
    desk.world.tasks.tasks[TaskId("s3cond")] = make_task("s3cond", TaskStatus.RUNNING)
    done = make_report().ended
    failed = tuple(replace(done[0], id=TaskId(each), status=TaskStatus.FAILED) for each in ids)
    desk.world.reports.changes = {"ended": (*failed, *done)}
    shown = await desk.send_message("/report")
    assert _actions(shown)[0] == RetryTask(task_id="f1rst0", also=("s3cond", "th1rd0"))

    reply = await desk.press(desk.world.post.token("reply:1", RetryTask))

    assert "Retrying 2 tasks" in text_of(reply)
    statuses = [desk.world.tasks.tasks[TaskId(each)].status for each in ids]
    assert statuses == [TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.PENDING]
    again = await desk.send_message("/retry s3cond f1rst0")
    assert "None of these tasks can be retried" in text_of(again)


async def test_a_report_comes_at_a_time_until_it_is_turned_off() -> None:
    desk = RouterHarness()
    desk.world.schedules.timings = {
        "daily 18:00": CronTiming(expression="0 18 * * *"),
        "weekly mon 9:00": CronTiming(expression="0 9 * * 1"),
    }

    daily = text_of(await desk.send_message("/report daily"))
    weekly = text_of(await desk.send_message("/report weekly mon 9:00"))
    off = text_of(await desk.send_message("/report off"))
    again = text_of(await desk.send_message("/report off"))

    assert "18:00" in daily
    assert "/report off" in daily
    assert "Monday" in weekly
    assert "off" in off
    assert "No report was scheduled" in again


async def test_chinese_times_are_read_with_or_without_a_blank() -> None:
    desk = RouterHarness()
    desk.world.schedules.timings = {"每周一 9:00": CronTiming(expression="0 9 * * 1")}

    await desk.send_message("/报告 每周一 9:00")
    await desk.send_message("/报告 每周 一 9:00")

    assert list(desk.world.reports.on) == [ReportPeriod.WEEK]


@pytest.mark.parametrize(
    "text", ["/report yesterday", "/report daily never", "/report weekly once"]
)
async def test_what_is_not_understood_changes_nothing(text: str) -> None:
    desk = RouterHarness()
    desk.world.schedules.timings = {"weekly once": OneTime(at=NOW)}

    reply = await desk.send_message(text)

    assert not reply.good or "⚠" in text_of(reply)
    assert desk.world.reports.on == {}
    assert desk.world.reports.asked == []


async def test_the_shell_gets_the_figures_as_json() -> None:
    desk = RouterHarness()

    data = json.loads(json.dumps((await desk.send_message("/report")).data))

    assert data["tasks"] == {"completed": 1}
    assert data["cost_micros"] == 420_000
    assert data["waiting"][0]["id"] == "p4used"
    assert len(data["days"]) == 30
    assert data["findings"][0]["kind"] == "retry_waste"


def _actions(reply: Reply) -> list[object]:
    assert reply.card is not None
    buttons = reply.card.blocks[-1]
    assert isinstance(buttons, ButtonsBlock)
    return [each.action for each in buttons.items]


def _pictures(reply: object) -> list[str]:
    card = getattr(reply, "card", None)
    assert card is not None
    return [block.path for block in card.blocks if isinstance(block, ImageBlock)]
