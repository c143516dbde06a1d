"""Timings in words of both languages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cards.catalog import catalog_for
from cards.views.timings import timing_text
from storage.records.people import Language
from storage.records.schedules import CronTiming, DayFilter, Interval, OneTime, Timing

SHANGHAI = ZoneInfo("Asia/Shanghai")
START = datetime(2026, 11, 30, 1, tzinfo=UTC)
"""A Monday, at nine in Shanghai."""


def cron(expression: str, days: DayFilter = DayFilter.ANY, nth: int = 0) -> CronTiming:
    return CronTiming(expression=expression, days=days, nth=nth)


@pytest.mark.parametrize(
    ("timing", "english", "chinese"),
    [
        (OneTime(at=START), "Monday 2026-11-30 09:00", "周一 2026-11-30 09:00"),
        (Interval(every=timedelta(minutes=20), start=START), "every 20 minutes", "每 20 分钟"),
        (Interval(every=timedelta(hours=1), start=START), "every hour", "每小时"),
        (Interval(every=timedelta(minutes=90), start=START), "every 90 minutes", "每 90 分钟"),
        (Interval(every=timedelta(seconds=90), start=START), "every 90 seconds", "每 90 秒"),
        (Interval(every=timedelta(days=2), start=START), "every 2 days at 09:00", "每 2 天 09:00"),
        (
            Interval(every=timedelta(days=14), start=START),
            "every 2 weeks on Monday at 09:00",
            "每 2 周的周一 09:00",
        ),
        (cron("0 9 * * *"), "every day at 09:00", "每天 09:00"),
        (cron("30 8 * * 1-5"), "every Monday to Friday at 08:30", "每周一到周五 08:30"),
        (cron("30 8 * * MON-FRI"), "every Monday to Friday at 08:30", "每周一到周五 08:30"),
        (
            cron("30 18 * * 1,3,5"),
            "every Monday, Wednesday and Friday at 18:30",
            "每周一、周三、周五 18:30",
        ),
        (cron("0 9 * * 7"), "every Sunday at 09:00", "每周日 09:00"),
        (cron("0 9 * * 0,6"), "every Saturday and Sunday at 09:00", "每周六、周日 09:00"),
        (cron("0 9,18 * * *"), "every day at 09:00 and 18:00", "每天 09:00、18:00"),
        (cron("0 9 1,15 * *"), "on day 1 and 15 of every month at 09:00", "每月 1、15 日 09:00"),
        (cron("0 9 L * *"), "on the last day of every month at 09:00", "每月最后一天 09:00"),
        (cron("0 9 * * 1#1"), "every month on the first Monday at 09:00", "每月第一个周一 09:00"),
        (cron("0 9 * * 5L"), "every month on the last Friday at 09:00", "每月最后一个周五 09:00"),
        (cron("0 9 3 12 *"), "on day 3 of December at 09:00", "12 月 3 日 09:00"),
        (
            cron("0 9 1 1,7 *"),
            "on day 1 of January and July at 09:00",
            "1 月、7 月 1 日 09:00",
        ),
        (cron("0 * * * *"), "every hour", "每小时"),
        (cron("15 * * * *"), "every hour at minute 15", "每小时第 15 分"),
        (cron("* * * * *"), "every minute", "每分钟"),
        (
            cron("*/15 * * * 1-5"),
            "every 15 minutes, every Monday to Friday",
            "每周一到周五，每 15 分钟",
        ),
        (cron("30 8 * * *", DayFilter.WORKING), "every working day at 08:30", "每个工作日 08:30"),
        (cron("30 8 * * *", DayFilter.FREE), "every day off at 08:30", "每个休息日 08:30"),
        (
            cron("30 8 * * 1", DayFilter.WORKING),
            "every Monday at 08:30, on working days only",
            "每周一 08:30（仅工作日）",
        ),
        (
            cron("0 * * * *", DayFilter.WORKING),
            "every hour, on working days only",
            "每小时（仅工作日）",
        ),
        (
            cron("0 */2 * * *", DayFilter.FREE),
            "by cron `0 */2 * * *`, on days off only",
            "按 cron `0 */2 * * *`（仅休息日）",
        ),
        (
            cron("0 22,23 * * 1; 0 0-2 * * 2"),
            "every hour from 22:00 to 02:00, every Monday",
            "每周一，22:00 到 02:00 每小时",
        ),
        (
            cron("0,30 0 * * 2-6; 30 23 * * 1-5"),
            "every 30 minutes from 23:30 to 00:30, every Monday to Friday",
            "每周一到周五，23:30 到 00:30 每 30 分钟",
        ),
        (
            cron("0 22 * * 1; 0 1 * * 2; 0 2 * * 2"),
            "by cron `0 22 * * 1; 0 1 * * 2; 0 2 * * 2`",
            "按 cron `0 22 * * 1; 0 1 * * 2; 0 2 * * 2`",
        ),
        (
            cron("0 22 * * 1; 0 1 * * 3"),
            "by cron `0 22 * * 1; 0 1 * * 3`",
            "按 cron `0 22 * * 1; 0 1 * * 3`",
        ),
        (
            cron("30 8 * * 1-5; 0 22 * * 1-5"),
            "every Monday to Friday at 08:30 and 22:00",
            "每周一到周五 08:30、22:00",
        ),
        (
            cron("0 9-17 * * 1-5"),
            "every hour from 09:00 to 17:00, every Monday to Friday",
            "每周一到周五，09:00 到 17:00 每小时",
        ),
        (
            cron("0,30 9-16 * * *; 0 17 * * *", DayFilter.WORKING),
            "every 30 minutes from 09:00 to 17:00, every working day",
            "每个工作日，09:00 到 17:00 每 30 分钟",
        ),
        (
            cron("0 0-6,22,23 * * *"),
            "every hour from 22:00 to 06:00, every day",
            "每天，22:00 到 06:00 每小时",
        ),
        (
            cron("0 9 15,L * *"),
            "on day 15 of every month and the last day at 09:00",
            "每月 15 日、最后一天 09:00",
        ),
        (
            cron("0 17 * * *", DayFilter.WORKING, -1),
            "on the last working day of every month at 17:00",
            "每月最后一个工作日 17:00",
        ),
        (
            cron("0 9 * 1,7 *", DayFilter.WORKING, 1),
            "on the first working day of January and July at 09:00",
            "1 月、7 月第一个工作日 09:00",
        ),
        (
            cron("0 22 * * 1; 0 1 * * 2"),
            "every 3 hours from 22:00 to 01:00, every Monday",
            "每周一，22:00 到 01:00 每 3 小时",
        ),
        (
            cron("0 0-99999999 * * *"),
            "by cron `0 0-99999999 * * *`",
            "按 cron `0 0-99999999 * * *`",
        ),
        (cron("*/7 9-17 1-7 * 1"), "by cron `*/7 9-17 1-7 * 1`", "按 cron `*/7 9-17 1-7 * 1`"),
        (cron("0 */2 * * *"), "by cron `0 */2 * * *`", "按 cron `0 */2 * * *`"),
        (cron("`rubbish`"), "by cron `'rubbish'`", "按 cron `'rubbish'`"),
        (cron("0 9 1 13 *"), "by cron `0 9 1 13 *`", "按 cron `0 9 1 13 *`"),
        (cron("0 9 * * 1#9"), "by cron `0 9 * * 1#9`", "按 cron `0 9 * * 1#9`"),
        (
            CronTiming(expression="0 9 * * *", since=datetime(2026, 11, 29, 16, tzinfo=UTC)),
            "every day at 09:00, from Monday 2026-11-30",
            "每天 09:00，从周一 2026-11-30 起",
        ),
        (
            CronTiming(expression="0 9 * * *", until=datetime(2026, 12, 4, 15, 59, 59, tzinfo=UTC)),
            "every day at 09:00, until Friday 2026-12-04",
            "每天 09:00，到周五 2026-12-04 为止",
        ),
        (
            CronTiming(expression="0 9 * * *", until=datetime(2026, 12, 4, 6, tzinfo=UTC)),
            "every day at 09:00, until Friday 2026-12-04 14:00",
            "每天 09:00，到周五 2026-12-04 14:00 为止",
        ),
        (
            CronTiming(expression="0 9 * * *", times=1),
            "every day at 09:00, once",
            "每天 09:00，共 1 次",
        ),
    ],
)
def test_a_timing_in_words(timing: Timing, english: str, chinese: str) -> None:
    assert timing_text(timing, catalog_for(Language.ENGLISH), SHANGHAI) == english
    assert timing_text(timing, catalog_for(Language.CHINESE), SHANGHAI) == chinese
