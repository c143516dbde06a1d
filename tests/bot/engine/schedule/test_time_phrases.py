"""Times in words: what they mean, and what is refused."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.engine.schedule.time_phrases import read_request, read_timing, split_timing
from bot.engine.timing import TimingError
from cards.catalog import catalog_for
from handlers.middleware import explain_error
from storage.records.people import Language
from storage.records.schedules import CronTiming, DayFilter, Interval, OneTime, Timing
from tests.bot.engine.schedule import request_tables, timing_tables, wording_tables
from tests.case_tables import all_cases

SHANGHAI = ZoneInfo("Asia/Shanghai")
NOW = datetime(2026, 11, 26, 10, tzinfo=SHANGHAI)


def rows(table: str) -> list[tuple[str, str]]:
    return [
        (phrase, told)
        for phrase, _, told in (line.rpartition(" = ") for line in table.split("\n") if line)
    ]


def meaning(timing: Timing) -> str:
    """As the tables write it."""
    if isinstance(timing, OneTime) or not (timing.until or timing.times):
        return _endless(timing)
    until = timing.until.astimezone(SHANGHAI) if timing.until else None
    end = f"until {until:%m-%d %H:%M}".removesuffix(" 23:59") if until else f"{timing.times} times"
    return f"{_endless(timing)} {end}"


def _endless(timing: Timing) -> str:
    match timing:
        case OneTime(at=at):
            local = at.astimezone(SHANGHAI)
            year = "" if local.year == NOW.year else f"{local.year}-"
            seconds = f":{local.second:02}" if local.second else ""
            return f"{year}{local:%m-%d %H:%M}{seconds}"
        case Interval(every=every, start=start):
            minutes = every // timedelta(minutes=1)
            size = f"{minutes}m"
            if minutes % 1440 == 0:
                size = f"{minutes // 1440}d"
            elif minutes % 60 == 0:
                size = f"{minutes // 60}h"
            return f"every {size} from {start.astimezone(SHANGHAI):%m-%d %H:%M}"
        case CronTiming(expression=expression, days=days, nth=nth, since=since):
            of = f"{days}#{nth}" if nth else days
            said = expression if days is DayFilter.ANY else f"{of} {expression}"
            return f"{said} since {since.astimezone(SHANGHAI):%m-%d}" if since else said


@all_cases(("phrase", "told"), rows(timing_tables.CHINESE) + rows(timing_tables.ENGLISH))
def test_a_phrase_means(phrase: str, told: str) -> None:
    assert meaning(read_timing(phrase, now=NOW, zone=SHANGHAI)) == told


def test_every_form_in_the_documentation_is_understood() -> None:
    page = (Path(__file__).parents[4] / "docs" / "schedule.md").read_text(encoding="utf-8")
    section = page.split("## Times in words")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| ")][1:]
    forms = re.findall(r"`([^`]+)`", "\n".join(table))

    assert len(forms) > 50
    for form in forms:
        read_timing(form, now=NOW, zone=SHANGHAI)


@all_cases(("phrase", "key"), rows(timing_tables.REFUSED))
def test_what_gives_no_time_is_refused(phrase: str, key: str) -> None:
    with pytest.raises(TimingError) as refused:
        read_timing(phrase, now=NOW, zone=SHANGHAI)

    assert refused.value.key == f"timing.{key}"
    for language in Language:
        assert explain_error(refused.value, catalog_for(language), "").hint


@all_cases(
    ("text", "told", "rest"),
    [
        ("明天9点 交周报", "11-27 09:00", "交周报"),
        ("明天9点交周报", "11-27 09:00", "交周报"),
        ("交周报 明天9点", "11-27 09:00", "交周报"),
        ("交周报，明天9点", "11-27 09:00", "交周报"),
        ("30分钟后 关火", "11-26 10:30", "关火"),
        ("半小时 关火", "11-26 10:30", "关火"),
        ("每周一三五 18:30 健身", "30 18 * * 1,3,5", "健身"),
        ("每天9点：喝水", "0 9 * * *", "喝水"),
        ("me in 20 minutes to call Ann", "11-26 10:20", "call Ann"),
        ("20m call Ann", "11-26 10:20", "call Ann"),
        ("1.5h Call Ann", "11-26 11:30", "Call Ann"),
        ("tomorrow at 9: submit the report", "11-27 09:00", "submit the report"),
        ("to submit the report tomorrow at 9", "11-27 09:00", "to submit the report"),
        ("call Ann in 20 minutes", "11-26 10:20", "call Ann"),
        ("daily9 send me the news", "0 9 * * *", "send me the news"),
        ("every weekday at 8:30 send me the news", "30 8 * * 1-5", "send me the news"),
        ("send me the news every weekday at 8:30", "30 8 * * 1-5", "send me the news"),
        ("0 9 * * 1-5 send me the News", "0 9 * * 1-5", "send me the News"),
        ('"30 8 L * *" pay the rent', "30 8 L * *", "pay the rent"),
        ("cron 0 9 * * * check it", "0 9 * * *", "check it"),
        ("Mon Wed Fri 7:00 run", "0 7 * * 1,3,5", "run"),
        ("12月1日到12月5日每天9点 打卡", "0 9 * * * since 12-01 until 12-05", "打卡"),
        ("2026-12-01 09:00 renew the domain", "12-01 09:00", "renew the domain"),
        ("every 2 hours", "every 2h from 11-26 12:00", ""),
    ],
)
def test_a_time_is_split_from_the_rest(text: str, told: str, rest: str) -> None:
    timing, left = split_timing(text, now=NOW, zone=SHANGHAI)

    assert (meaning(timing), left) == (told, rest)


@pytest.mark.parametrize(
    "text",
    [
        *("交周报", "call Ann", "", "call Ann yesterday at 9"),
        *("* * * * * * * rubbish", "0 0 9 * * 1-5 call Ann", "every day 1000000 times call Ann"),
        *("tomorrow 25:00 call Ann", "Tue Thu 7:00 run", "12月1日到12月5日出差"),
        *("every day except Sunday walk", "每年农历八月十五 赏月"),
        *("every Monday until Friday call Ann", "每天3次 吃药", "下午5点前10分钟出发"),
    ],
)
def test_a_text_without_a_time_is_not_split(text: str) -> None:
    with pytest.raises(TimingError):
        split_timing(text, now=NOW, zone=SHANGHAI)


@pytest.mark.parametrize(
    ("phrase", "local"),
    [
        ("tomorrow at 2:30", "2026-03-29 14:30"),
        ("tomorrow at 02:30", "2026-03-29 03:00"),
        ("in 1 day", "2026-03-29 12:00"),
        ("in 24 hours", "2026-03-29 13:00"),
        ("in 2 weeks", "2026-04-11 12:00"),
    ],
)
def test_days_keep_the_local_hour_over_a_change_of_summer_time(phrase: str, local: str) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    timing = read_timing(phrase, now=datetime(2026, 3, 28, 12, tzinfo=berlin), zone=berlin)

    assert isinstance(timing, OneTime)
    assert f"{timing.at.astimezone(berlin):%Y-%m-%d %H:%M}" == local


def test_the_end_of_the_month_is_the_next_one_when_this_is_over() -> None:
    last_day = datetime(2026, 11, 30, 10, tzinfo=SHANGHAI)

    assert meaning(read_timing("月底", now=last_day, zone=SHANGHAI)) == "12-31 09:00"
    with pytest.raises(TimingError):
        read_timing("这个月底", now=last_day, zone=SHANGHAI)


def test_a_request_may_name_its_zone() -> None:
    request = read_request(
        "remind me every day at 9 Berlin time to stretch", now=NOW, zone=SHANGHAI
    )

    assert request is not None
    assert (meaning(request.timing), request.zone_name) == ("0 9 * * *", "Europe/Berlin")


def test_a_long_message_keeps_its_end() -> None:
    told = "x" * 90_000
    request = read_request(f"remind me tomorrow at 9: {told}", now=NOW, zone=SHANGHAI)

    assert request is not None
    assert request.subject == told


REQUESTS = [
    tuple(cell.strip() for cell in line.split("|"))
    for line in (request_tables.CHINESE + request_tables.ENGLISH).split("\n")
    if line
]


@all_cases(("message", "told", "kind", "subject"), REQUESTS)
def test_a_message_asks_for_later(message: str, told: str, kind: str, subject: str) -> None:
    request = read_request(message, now=NOW, zone=SHANGHAI)

    assert request is not None
    assert meaning(request.timing) == told
    assert request.asks_reminder is (kind == "remind")
    assert request.subject == subject


@all_cases("message", request_tables.NEGATIVE.strip().split("\n"))
def test_other_messages_do_not(message: str) -> None:
    assert read_request(message, now=NOW, zone=SHANGHAI) is None


@pytest.mark.parametrize("table", [wording_tables.CHINESE, wording_tables.ENGLISH])
def test_messages_as_people_write_them(table: str) -> None:
    wrong = []
    for line in table.strip().split("\n"):
        message, told, *subject = line.split(" | ")
        request = read_request(message, now=NOW, zone=SHANGHAI)
        found = "-"
        if request is not None:
            kind = ">" if request.asks_reminder else "*"
            found = f"{meaning(request.timing)} | {kind} {request.subject}".rstrip()
        if found != " | ".join((told, *subject)):
            wrong.append(f"{message}: {found}")

    assert not wrong
