"""Whatever a text says: a time to come or a refusal, and never long thought."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.schedule.time_phrases import read_request, read_timing, split_timing
from bot.engine.timing import TimingError, WeekdayCalendar, next_due
from storage.records.schedules import Timing
from tests.waiting import WAIT_SECONDS

ZONES = [ZoneInfo(name) for name in ("Asia/Shanghai", "Europe/Berlin", "America/Santiago", "UTC")]
WORDS = [
    *(
        "every",
        "at",
        "on",
        "in",
        "the",
        "of",
        "next",
        "this",
        "last",
        "first",
        "and",
        "to",
        "other",
    ),
    *("day", "weekday", "monday", "fri", "month", "week", "hours", "minutes", "year", "quarter"),
    *(
        "9",
        "0",
        "24",
        "99999",
        "12:30",
        "9am",
        "12pm",
        "31st",
        "dec",
        "feb 30",
        "2026-12-01",
        "noon",
    ),
    *("remind me", "send", "tomorrow", "tonight", "midnight", "daily", "*", "*/5", "utc", "-", ","),
    *(
        "每",
        "天",
        "周",
        "一",
        "三五",
        "下",
        "个",
        "月",
        "号",
        "31",
        "点",
        "半",
        "后",
        "小时",
        "分钟",
        "工作日",
    ),
    *("starting", "until", "for", "twice", "从", "开始", "直到", "持续", "共3次", "但"),
    *("from 9 to 17", "between 22 and 5", "9点到17点", "working day", "eod", "first thing"),
    *(
        "明天",
        "后天",
        "晚上",
        "提醒我",
        "最后",
        "第",
        "底",
        "隔",
        "年",
        "北京时间",
        "时",
        "零",
        "百",
        "：",
        "、",
    ),
]
texts = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=9).map("".join),
    st.text(max_size=80),
)
moments = st.datetimes(
    min_value=datetime(2026, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(2030, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from(ZONES),
)


def is_to_come(timing: Timing, now: datetime, zone: ZoneInfo) -> bool:
    due = next_due(timing, after=now, zone=zone, calendar=WeekdayCalendar())
    return due is not None and due > now and due.tzinfo is UTC


@given(text=texts, now=moments)
def test_every_text_gives_a_time_to_come_or_is_refused(text: str, now: datetime) -> None:
    zone = now.tzinfo
    assert isinstance(zone, ZoneInfo)

    for read in (read_timing, lambda *a, **k: split_timing(*a, **k)[0]):
        try:
            timing = read(text, now=now, zone=zone)
        except TimingError:
            continue
        assert is_to_come(timing, now, zone)


@given(
    text=texts, now=moments, lead=st.sampled_from(["", "remind me ", "提醒我", "send me ", "每天"])
)
def test_every_message_is_a_request_for_a_time_to_come_or_none(
    text: str, now: datetime, lead: str
) -> None:
    zone = now.tzinfo
    assert isinstance(zone, ZoneInfo)

    request = read_request(lead + text, now=now, zone=zone)

    if request is not None:
        own = ZoneInfo(request.zone_name) if request.zone_name else zone
        assert is_to_come(request.timing, now, own)


@pytest.mark.timeout(WAIT_SECONDS)
@pytest.mark.parametrize(
    "piece",
    [
        *(
            "1",
            "一",
            " ",
            ",",
            "every ",
            "and ",
            "每周一",
            "周一、",
            "a",
            "9:",
            "1号、",
            "请",
            "please ",
        ),
        *(
            "1h",
            "半",
            "* ",
            "12/",
            "mon,",
            "提醒我",
            "remind me ",
            "in 1 minute ",
            "send ",
            "把",
            "0 9 ",
        ),
        *(
            "at 9 and ",
            "明天",
            "9点、",
            "第一个",
            '"',
            "(",
            "\n",
            "的",
            "x",
            "点",
            "remind me to x at 9 ",
            "9点",
            "1月",
            "从明天开始",
        ),
    ],
)
def test_a_text_of_100_000_characters_is_read_at_once(piece: str) -> None:
    now = datetime(2026, 11, 26, 10, tzinfo=ZONES[0])
    text = (piece * 100_000)[:100_000]

    for lead in ("", "remind me ", "提醒我", "send me ", "每天9点"):
        read_request(lead + text, now=now, zone=ZONES[0])
    for read in (read_timing, split_timing):
        with suppress(TimingError):
            read(text, now=now, zone=ZONES[0])
