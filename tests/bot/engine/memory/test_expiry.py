"""Tests that a fact expires with the day or week that it names, in the owner's time zone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.engine.memory.expiry import infer_valid_until
from storage.records.memory import MemoryCategory
from tests.bot.engine.memory.writing_builders import build_writing, extracted_fact, extraction_of

SHANGHAI = ZoneInfo("Asia/Shanghai")
MONDAY = datetime(2026, 5, 4, 8, 0, tzinfo=UTC)
"""At eight in the morning, and in Shanghai at four in the afternoon."""
SPANS = {
    "后天": 48,
    "the day after tomorrow": 48,
    "明天": 24,
    "tomorrow": 24,
    "下周": 7 * 24,
    "next week": 7 * 24,
    "这周": 3 * 24,
    "this week": 3 * 24,
    "下个月": 30 * 24,
    "next month": 30 * 24,
    "这个月": 15 * 24,
    "this month": 15 * 24,
    "今晚": 12,
    "tonight": 12,
    "今天": 18,
    "today": 18,
}


@pytest.mark.parametrize("words", SPANS)
def test_it_holds_at_least_as_long_as_the_formula_says(words: str) -> None:
    span = timedelta(hours=SPANS[words])
    for hours in range(0, 24 * 35, 5):
        said = MONDAY + timedelta(hours=hours)
        until = infer_valid_until(f"The fair is {words}", MemoryCategory.EVENTS, said, SHANGHAI)
        assert until is not None
        assert until >= said + span


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("My flight is tomorrow at 18:00", datetime(2026, 5, 6, tzinfo=UTC)),
        ("明天晚上七点和李总吃饭", datetime(2026, 5, 6, tzinfo=UTC)),
        ("后天晚上出发", datetime(2026, 5, 7, tzinfo=UTC)),
        ("The board meets next week on Friday", datetime(2026, 5, 18, tzinfo=UTC)),
        ("下周五交付第二版", datetime(2026, 5, 18, tzinfo=UTC)),
        ("这周日聚餐", datetime(2026, 5, 11, tzinfo=UTC)),
        ("今晚十点半发布", datetime(2026, 5, 5, tzinfo=UTC)),
        ("下个月底搬家", datetime(2026, 7, 1, tzinfo=UTC)),
        ("It begins tomorrow and ends next week", datetime(2026, 5, 18, tzinfo=UTC)),
    ],
)
def test_it_is_not_over_before_the_day_that_it_names(text: str, until: datetime) -> None:
    assert infer_valid_until(text, MemoryCategory.EVENTS, MONDAY) == until


def test_a_day_ends_where_the_boss_lives() -> None:
    late = datetime(2026, 5, 4, 23, 0, tzinfo=UTC)  # Tuesday morning in Shanghai
    assert infer_valid_until("明天下午开会", MemoryCategory.EVENTS, late, SHANGHAI) == datetime(
        2026, 5, 6, 16, 0, tzinfo=UTC
    )


@pytest.mark.parametrize("category", [MemoryCategory.PROFILE, MemoryCategory.CASES])
def test_traits_do_not_end(category: MemoryCategory) -> None:
    assert infer_valid_until("Said today that nuts make them ill", category, MONDAY) is None


async def test_a_model_is_told_the_day_that_it_was_for_whoever_said_it(tmp_path: Path) -> None:
    async with build_writing(tmp_path, zone=SHANGHAI) as memory:
        memory.world.clock.time = datetime(2026, 5, 4, 23, 0, tzinfo=UTC)
        await memory.record_turn("记住：昨天我们搬到了新的办公室", "好的。")
        memory.model.answers = [
            extraction_of(extracted_fact("他们明天下午搬家", category="events"))
        ]
        await memory.run_jobs()

        [asked] = memory.model.queries
        [turn] = json.loads(asked.prompt)["conversation"]
        assert turn["at"] == "2026-05-05 07:00"
        moving = [each for each in await memory.list_entries() if each.text == "他们明天下午搬家"]
        assert [each.valid_until for each in moving] == [datetime(2026, 5, 6, 16, 0, tzinfo=UTC)]
