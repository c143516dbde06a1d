"""Words of the tables are understood in both languages, with any symbols."""

from __future__ import annotations

import pytest

from bot.sync.layout import (
    LAYOUT,
    column_key,
    column_name,
    option_name,
    option_role,
    table_name,
    table_role,
)
from storage.records.bitable import LogField, MemoryField, TableRole, TaskField
from storage.records.people import Language

LANGUAGES = tuple(Language)


def test_every_column_of_the_store_is_in_the_layout() -> None:
    keys = {
        table: {each.key for each in columns} - {"modified"} for table, columns in LAYOUT.items()
    }

    assert keys == {
        TableRole.TASKS: set(TaskField),
        TableRole.LOGS: set(LogField),
        TableRole.MEMORIES: set(MemoryField),
    }


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("table", LAYOUT)
def test_what_is_written_is_recognised(table: TableRole, language: Language) -> None:
    assert table_role(table_name(table, language)) is table
    for column in LAYOUT[table]:
        assert column_key(table, column_name(table, column.key, language)) == column.key
        for role in column.options:
            shown = option_name(table, column.key, role, language)
            assert option_role(table, column.key, shown) == role


@pytest.mark.parametrize(
    ("shown", "role"),
    [
        ("🕐 待开始", "pending"),
        ("🔒 阻塞", "blocked"),
        ("❌ 已取消", "cancelled"),
        ("  DONE ", "completed"),
        ("In progress", "running"),
        ("whatever", None),
        ("", None),
    ],
)
def test_a_status_is_found_by_its_word(shown: str, role: str | None) -> None:
    assert option_role(TableRole.TASKS, TaskField.STATUS, shown) == role


@pytest.mark.parametrize(("shown", "role"), [("⭐⭐⭐", "high"), ("⭐", "low"), ("🔴核心", "high")])
def test_an_importance_is_found_by_its_stars(shown: str, role: str) -> None:
    assert option_role(TableRole.MEMORIES, MemoryField.IMPORTANCE, shown) == role
