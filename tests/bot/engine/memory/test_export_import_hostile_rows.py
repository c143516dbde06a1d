"""Files that are said to be exports or backups, with rows that no export has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bot.engine.memory.test_service import build_service, list_all
from tests.bot.engine.memory.writing_builders import MY_SCOPE
from tests.engine_harness import BOSS, CHAT

GOOD = {"text": "likes\u2028tea \u202e and\x85cats"}
BAD = (
    "{",
    "[]",
    "7",
    '"text"',
    '{"text": 1}',
    '{"text": null}',
    '{"text": "x", "kind": [1]}',
    '{"text": "x", "kind": "emperor"}',
    '{"text": "x", "category": {"a": 1}}',
    '{"text": "x", "keywords": 7}',
    '{"text": "x", "keywords": {"a": 1}}',
    '{"text": "x", "state": []}',
    "[" * 100_000,
)


async def test_what_is_no_row_spoils_no_other_that_is_brought(tmp_path: Path) -> None:
    odd = '{"text": "odd", "label": "\\ud800", "keywords": ["\\ud800"], "key": "\\u0000"}'
    rows = [json.dumps(GOOD, ensure_ascii=False), *BAD, odd]
    async with build_service(tmp_path) as (book, memory):
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "in.jsonl").write_text("\n".join(rows))

        brought = await book.import_entries(BOSS, CHAT, "files/in.jsonl")

        kept = [each.text for each in await memory.entries.list([MY_SCOPE])]
        assert sorted(kept) == sorted((GOOD["text"], "odd"))
        assert brought.added == 2
        assert len(brought.line_errors) + brought.left_out == len(BAD)


@pytest.mark.parametrize(
    "wrong",
    [
        {"importance": float("nan")},
        {"importance": 1e308},
        {"confidence": -1},
        {"at": "0001-01-01T00:00:00+00:00"},
        {"at": "9999-12-31T23:59:59+00:00"},
        {"at": 7},
        {"keywords": 7},
        {"scope": "person:"},
        {"scope": []},
        {"kind": []},
        {"label": "x" * 1_000},
        {"sender": "x" * 1_000},
        {"text": "x" * 11_000},
    ],
)
async def test_what_no_backup_has_written_is_not_put_back(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    async with build_service(tmp_path) as (book, memory):
        for text in ("likes tea", "has cats"):
            await book.add(BOSS, CHAT, text)
        path = await book.cleanup.back_up()
        tea, cats = map(json.loads, (tmp_path / path).read_text().splitlines())
        async with memory.world.db.write() as tx:
            for each in await list_all(memory):
                await memory.entries.delete(tx, each)
        (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, ({**tea, **wrong}, cats))))

        done = await book.restore(BOSS, CHAT, "b.jsonl")

        assert list(done.line_errors) == [1]
        assert [each.text for each in await memory.entries.list([MY_SCOPE])] == ["has cats"]
