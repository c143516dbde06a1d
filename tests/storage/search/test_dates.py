"""Days that people name, in the way they name them."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.search.dates import day_tokens, find_dates
from tests.case_tables import all_cases

WEDNESDAY = date(2023, 5, 10)


def named(text: str, today: date = WEDNESDAY) -> list[str]:
    return [token for each in find_dates(text, today) for token in each.tokens]


@all_cases(
    ("text", "tokens"),
    [
        ("昨天吃了什么", ["=2023-05-09"]),
        ("前天和大前天", ["=2023-05-08", "=2023-05-07"]),
        ("后天出发", ["=2023-05-12"]),
        ("上周三", ["=2023-05-03"]),
        ("上个星期天", ["=2023-05-07"]),
        ("上周末", ["=2023-05-06", "=2023-05-07"]),
        ("下下周一", ["=2023-05-22"]),
        ("周五开会", ["=w4"]),
        ("5月2号", ["=05-02"]),
        ("五月二十号", ["=05-20"]),
        ("二〇二三年", []),
        ("2023年5月2日", ["=2023-05-02"]),
        ("去年5月", ["=2022-05"]),
        ("3天前", ["=2023-05-07"]),
        ("十二天前", ["=2023-04-28"]),
        ("上个月", ["=2023-04"]),
        ("两年前", ["=2021"]),
        ("last Friday", ["=2023-05-05"]),
        ("last Wednesday", ["=2023-05-03"]),
        ("next Monday", ["=2023-05-15"]),
        ("Yesterday I ran", ["=2023-05-09"]),
        ("the day before yesterday", ["=2023-05-08"]),
        ("3 days ago", ["=2023-05-07"]),
        ("two months ago", ["=2023-03"]),
        ("May 2nd, 2023", ["=2023-05-02"]),
        ("2 May 2023", ["=2023-05-02"]),
        ("1:56 pm on 8 May, 2023", ["=2023-05-08"]),
        ("the 3rd of June", ["=06-03"]),
        ("in May", ["=05"]),
        ("during march 2022", ["=2022-03"]),
        ("last June", ["=2022-06"]),
        ("2023-05-02", ["=2023-05-02"]),
        ("back in 2019", ["=2019"]),
        ("on Mondays", []),
        ("on Monday", ["=w0"]),
        ("may I march on", []),
        ("13月40日", []),
        ("2023-02-30", ["=2023"]),
        ("February 30", ["=02"]),
        ("version 1.2023", []),
    ],
)
def test_what_a_text_names(text: str, tokens: list[str]) -> None:
    assert named(text) == tokens


def test_a_week_is_its_days() -> None:
    week = [f"=2023-05-0{day}" for day in range(1, 8)]

    assert named("last week") == named("上周怎么样") == week


@given(st.dates(), st.dates())
def test_a_day_is_found_by_each_way_to_write_it(day: date, today: date) -> None:
    stored = set(day_tokens(day))
    for text in (
        day.isoformat(),
        f"{day.year:04}年{day.month}月{day.day}日",
        f"{day.month}月{day.day}号",
        f"{day:%B} {day.day}, {day.year:04}",
        f"{day.day} {day:%B} {day.year:04}",
    ):
        found = named(text, today)
        assert found
        assert set(found) <= stored, text


@given(
    st.text(alphabet="0123456789年月日号前天周上下个昨今明一二十 ago days last may-/", max_size=80),
    st.dates(),
)
def test_no_text_and_no_day_is_too_strange(text: str, today: date) -> None:
    for each in find_dates(text, today):
        assert each.tokens
        assert 0 <= each.start < each.end <= len(text)


@pytest.mark.parametrize("today", [date.min, date.max])
def test_days_beyond_the_calendar_are_left_out(today: date) -> None:
    for text in ("昨天", "明天", "上周", "下周", "9999年前", "999天后", "last week", "next year"):
        for token in named(text, today):
            assert MINYEAR <= int(token[1:5]) <= MAXYEAR


def test_a_long_list_of_days_is_cut() -> None:
    many = " ".join(f"{date(2020, 1, 1) + timedelta(days=n):%Y-%m-%d}" for n in range(1000))

    assert len(find_dates(many, WEDNESDAY)) == 20
