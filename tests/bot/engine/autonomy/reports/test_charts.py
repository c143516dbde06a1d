"""Pictures of reports: what is where, and that a phone can show them."""

from __future__ import annotations

import struct
import zlib
from datetime import date, timedelta

import pytest

from bot.engine.autonomy.reports.charts import draw_cost_chart, draw_heat_map, shade, text_width
from storage.records.autonomy import DayFigures
from storage.records.people import Language

EMPTY_DAY = (0,) * 24


@pytest.mark.parametrize("language", list(Language))
def test_a_picture_is_a_png_with_all_its_lines(language: Language) -> None:
    picture = draw_heat_map(((*range(24),), *(EMPTY_DAY,) * 6), language)
    data = picture.png()

    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (picture.width, picture.height)
    start = data.index(b"IDAT") + 4
    lines = zlib.decompress(data[start : data.index(b"IEND")])
    assert len(lines) == (picture.width + 1) * picture.height


def test_the_busiest_hour_is_the_darkest() -> None:
    assert [shade(count, 100) for count in (0, 1, 25, 26, 100)] == [3, 4, 4, 5, 7]
    assert shade(1, 1) == 7


def test_the_highest_bar_reaches_the_top_and_a_day_without_cost_has_none() -> None:
    costs = [0, 500_000, 1_000_000]
    days = [
        DayFigures(day=date(2026, 3, 1) + timedelta(days=n), micros=each)
        for n, each in enumerate(costs)
    ]

    chart = draw_cost_chart(days)

    bar = (62, 127, 188)
    columns = [
        sum(chart.pixel(x, y) == bar for y in range(chart.height)) for x in range(chart.width)
    ]
    assert sorted(set(columns)) == [0, 130, 260]


def test_labels_are_readable_where_a_phone_shows_a_third() -> None:
    picture = draw_heat_map((EMPTY_DAY,) * 6 + (((1,) * 24),), Language.CHINESE)

    assert picture.width <= 1280
    assert text_width("0") / picture.width * 360 >= 7, "points on a phone"
