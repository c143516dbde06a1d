"""Durations, ages, money and sizes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cards import formats
from cards.catalog import catalog_for
from storage.records.people import Language
from storage.records.tasks import UsageTotals

EN, ZH = catalog_for(Language.ENGLISH), catalog_for(Language.CHINESE)
NOW = datetime(2026, 3, 4, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (-5, "0 s", "0 秒"),
        (59.9, "59 s", "59 秒"),
        (65, "1 min 05 s", "1 分 05 秒"),
        (3600, "1 h 00 min", "1 小时 00 分"),
        (90_000, "1 d 1 h", "1 天 1 小时"),
    ],
)
def test_durations(seconds: float, english: str, chinese: str) -> None:
    span = timedelta(seconds=seconds)

    assert (formats.duration(span, EN), formats.duration(span, ZH)) == (english, chinese)


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (timedelta(seconds=-9), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=5), "5 min ago"),
        (timedelta(hours=25), "1 d ago"),
        (timedelta(hours=3), "3 h ago"),
    ],
)
def test_ages(ago: timedelta, expected: str) -> None:
    assert formats.time_ago(NOW - ago, NOW, EN) == expected


@pytest.mark.parametrize(
    ("micros", "expected"),
    [
        (0, "$0.00"),
        (12_300, "$0.0123"),
        (999_999, "$1.0000"),
        (1_500_000, "$1.50"),
        (1_234_567_890, "$1,234.57"),
        (-12_300, "-$0.0123"),
    ],
)
def test_money(micros: int, expected: str) -> None:
    assert formats.money(micros) == expected


def test_money_nobody_knows_is_not_called_nothing() -> None:
    assert formats.spent_cost(UsageTotals(calls=1, unpriced=1), EN) == "price unknown"
    silent = UsageTotals(calls=1, input_tokens=9_000, output_tokens=1_000, estimated_tokens=10_000)
    assert formats.spent_tokens(silent, EN) == "unknown (about 10.0k tokens)"
    assert formats.spent_tokens(silent, ZH) == "token 数未知（约 10.0k）"
    assert formats.spent_tokens(replace(silent, estimated_tokens=9_999), EN) == "10.0k tokens"
    assert (
        formats.spent_cost(UsageTotals(calls=2, unpriced=1, cost_micros=5000), EN)
        == "at least $0.0050"
    )


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (12_345, "12.3k"),
        (999_960, "1.0M"),
        (4_500_000, "4.5M"),
    ],
)
def test_counts(number: int, expected: str) -> None:
    assert formats.compact_number(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(-1, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (5 * 1024**3, "5.0 GB")],
)
def test_sizes(number: int, expected: str) -> None:
    assert formats.file_size(number) == expected


def test_times_are_the_boss_s() -> None:
    assert formats.date_time(NOW, ZoneInfo("Asia/Shanghai")) == "2026-03-05 07:30"
    assert formats.time_of_day(NOW, ZoneInfo("America/New_York")) == "18:30:00"


def test_a_preview_is_the_first_lines_that_say_something() -> None:
    assert formats.first_lines("\n\none\n\n two \nthree\nfour") == "one\n two\nthree"


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_nothing_cut_is_longer_than_asked(text: str, limit: int) -> None:
    assert len(formats.truncate(text, limit)) <= limit
    assert len(formats.single_line(text, limit)) <= limit
    assert "\n" not in formats.single_line(text, limit)
    assert len(formats.first_lines(text, limit=limit)) <= limit


@given(st.text(), st.integers(min_value=5, max_value=50))
def test_a_tail_fits_and_ends_as_the_text_does(text: str, limit: int) -> None:
    tail = formats.last_lines(text, limit)

    assert len(tail) <= limit
    assert text.endswith(tail.removeprefix("…\n"))
