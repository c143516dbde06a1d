"""Layout of the three tables: their columns and options, and the words that people use for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bot.sync.ports import FieldType
from cards.catalog import catalog_for
from storage.records.bitable import LogField, MemoryField, TableRole, TaskField
from storage.records.memory import MemoryCategory
from storage.records.people import Language
from storage.records.task_logs import LogKind
from storage.records.tasks import TaskPriority, TaskStatus

MODIFIED_KEY = "modified"
"""The column by which changes are found; the platform fills it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLayout:
    """`key` is the column's role; `options` are the roles of the options of a select."""

    key: str
    type: FieldType
    options: tuple[str, ...] = ()


def _column(key: str, kind: FieldType, *options: str) -> ColumnLayout:
    return ColumnLayout(key=key, type=kind, options=options)


_TEXT, _NUMBER, _DATE = FieldType.TEXT, FieldType.NUMBER, FieldType.DATE
_SELECT = FieldType.SINGLE_SELECT
_MODIFIED = _column(MODIFIED_KEY, FieldType.MODIFIED_TIME)

LAYOUT: Mapping[TableRole, tuple[ColumnLayout, ...]] = {
    TableRole.TASKS: (
        _column(TaskField.TITLE, _TEXT),
        _column(TaskField.STATUS, _SELECT, *TaskStatus),
        _column(TaskField.PRIORITY, _SELECT, *TaskPriority),
        _column(TaskField.INSTRUCTION, _TEXT),
        _column(TaskField.STAGE, _TEXT),
        _column(TaskField.PLAN, _TEXT),
        _column(TaskField.RESULT, _TEXT),
        _column(TaskField.NOTE, _TEXT),
        _column(TaskField.PERSON, _TEXT),
        _column(TaskField.ERRORS, _NUMBER),
        _column(TaskField.TOKENS, _NUMBER),
        _column(TaskField.COST, _NUMBER),
        _column(TaskField.CREATED, _DATE),
        _column(TaskField.STARTED, _DATE),
        _column(TaskField.ENDED, _DATE),
        _column(TaskField.PARENT, _TEXT),
        _column(TaskField.ID, _TEXT),
        _MODIFIED,
    ),
    TableRole.LOGS: (
        _column(LogField.CONTENT, _TEXT),
        _column(LogField.TASK, _TEXT),
        _column(LogField.KIND, _SELECT, *LogKind),
        _column(LogField.STAGE, _TEXT),
        _column(LogField.AT, _DATE),
        _column(LogField.ID, _TEXT),
        _MODIFIED,
    ),
    TableRole.MEMORIES: (
        _column(MemoryField.TITLE, _TEXT),
        _column(MemoryField.KIND, _SELECT, *MemoryCategory),
        _column(MemoryField.CONTENT, _TEXT),
        _column(MemoryField.IMPORTANCE, _SELECT, "high", "medium", "low"),
        _column(MemoryField.AT, _DATE),
        _column(MemoryField.ACTIVE, FieldType.CHECKBOX),
        _column(MemoryField.NOTE, _TEXT),
        _column(MemoryField.ID, _TEXT),
        _MODIFIED,
    ),
}
"""The columns in their order; the first one is the primary column."""


def base_name(language: Language) -> str:
    return catalog_for(language)("bitable.base")


def table_name(table: TableRole, language: Language) -> str:
    return catalog_for(language)(f"bitable.table.{table}")


def table_role(shown: str) -> TableRole | None:
    """The table that this name means in any language."""
    names = {_plain(table_name(each, language)): each for language in Language for each in LAYOUT}
    return names.get(_plain(shown))


def column_name(table: TableRole, key: str, language: Language) -> str:
    return catalog_for(language)(f"bitable.{table}.{key}")


def column_key(table: TableRole, shown: str) -> str | None:
    """The role that a column of this name has in any language, or None."""
    return _column_names(table).get(_plain(shown))


def option_name(table: TableRole, key: str, role: str, language: Language) -> str:
    # In a catalogue, "other" is a form of the plural.
    word = "rest" if role == MemoryCategory.OTHER else role
    return catalog_for(language)(f"bitable.option.{table}.{key}.{word}")


def option_role(table: TableRole, key: str, shown: str) -> str | None:
    """The role of an option by its words in any language, without regard to symbols and case."""
    word = _plain(shown)
    if not word and key == MemoryField.IMPORTANCE:
        return _STARS.get(shown.count("⭐"))
    return _option_names(table, key).get(word)


@cache
def _column_names(table: TableRole) -> Mapping[str, str]:
    return {
        _plain(column_name(table, each.key, language)): each.key
        for language in Language
        for each in LAYOUT[table]
    }


@cache
def _option_names(table: TableRole, key: str) -> Mapping[str, str]:
    column = next(each for each in LAYOUT[table] if each.key == key)
    ours = {
        _plain(option_name(table, key, role, language)): role
        for language in Language
        for role in column.options
    }
    values = {_plain(role): role for role in column.options}
    return {**_SYNONYMS.get((table, key), {}), **values, **ours}


_NOT_WORDS = re.compile(r"[\W_]+")
_STARS = {3: "high", 2: "medium", 1: "low"}
_SYNONYMS: Mapping[tuple[TableRole, str], Mapping[str, str]] = {
    (TableRole.TASKS, TaskField.STATUS): {
        **dict.fromkeys(("todo", "new", "queued", "未开始", "排队中"), TaskStatus.PENDING),
        **dict.fromkeys(("doing", "inprogress", "处理中", "执行中"), TaskStatus.RUNNING),
        **dict.fromkeys(("等待", "待确认"), TaskStatus.WAITING),
        **dict.fromkeys(("暂停", "onhold"), TaskStatus.PAUSED),
        **dict.fromkeys(("已阻塞", "受阻"), TaskStatus.BLOCKED),
        **dict.fromkeys(("done", "finished", "完成"), TaskStatus.COMPLETED),
        **dict.fromkeys(("已失败",), TaskStatus.FAILED),
        **dict.fromkeys(("取消", "canceled", "stopped", "停止", "已停止"), TaskStatus.CANCELLED),
    },
    (TableRole.TASKS, TaskField.PRIORITY): {
        **dict.fromkeys(("high", "p0", "高", "急", "高优", "特急"), TaskPriority.URGENT),
        **dict.fromkeys(("medium", "p1", "中"), TaskPriority.IMPORTANT),
        **dict.fromkeys(("low", "p2", "低", "一般"), TaskPriority.NORMAL),
    },
    (TableRole.LOGS, LogField.KIND): {
        **dict.fromkeys(("规划",), LogKind.PLAN),
        **dict.fromkeys(("决定",), LogKind.DECISION),
        **dict.fromkeys(("进度",), LogKind.PROGRESS),
    },
    (TableRole.MEMORIES, MemoryField.KIND): {"上下文": MemoryCategory.OTHER},
    (TableRole.MEMORIES, MemoryField.IMPORTANCE): {
        **dict.fromkeys(("核心", "core", "3"), "high"),
        **dict.fromkeys(("重要", "important", "2"), "medium"),
        **dict.fromkeys(("普通", "normal", "1"), "low"),
    },
}


def _plain(shown: str) -> str:
    """Letters and digits only, in lower case."""
    return _NOT_WORDS.sub("", shown).casefold()
