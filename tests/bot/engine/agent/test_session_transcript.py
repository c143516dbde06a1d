"""A transcript's lines: one form for every backend, in order, and never a secret."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert

from bot.engine.agent.session_history import TranscriptService, transcript_lines
from bot.engine.redaction import SecretMasker
from storage import schema
from storage.db import Database
from storage.errors import AmbiguousId, NotFound
from storage.records.workers import TranscriptRow
from storage.sessions import SessionRepo, TranscriptRepo
from tests.bot.engine.agent.history_rows import (
    answer_row,
    call_part,
    result_part,
    results_row,
    user_row,
)
from tests.engine_harness import START, run_engine

SECRET = "correct-horse-battery"


def lines(content: Any) -> list[dict[str, Any]]:
    row = TranscriptRow(seq=1, at=datetime(2026, 1, 5, 9, tzinfo=UTC), content=content)
    return [json.loads(line) for line in transcript_lines(row, SecretMasker([SECRET]).mask)]


def parts(content: Any) -> list[tuple[str, Any]]:
    return [(line["role"], line["parts"]) for line in lines(content)]


def test_questions_calls_results_and_answers_have_their_roles() -> None:
    text = {"part_kind": "text", "content": "hello"}

    assert parts(user_row("hi")) == [("user", [{"type": "text", "text": "hi"}])]
    assert parts(answer_row(text, call_part("c1"))) == [
        (
            "assistant",
            [
                {"type": "text", "text": "hello"},
                {"type": "call", "id": "c1", "tool": "read", "arguments": {"path": "a"}},
            ],
        )
    ]
    prompt = {"part_kind": "user-prompt", "content": "go on"}
    assert parts(results_row(result_part("c1", "found"), prompt)) == [
        ("tool", [{"type": "result", "id": "c1", "tool": "read", "text": "found"}]),
        ("user", [{"type": "text", "text": "go on"}]),
    ]
    assert lines(user_row("hi"))[0]["at"] == "2026-01-05T09:00:00+00:00"


def test_a_picture_is_named_and_not_repeated() -> None:
    row = user_row("")
    picture = {"kind": "binary", "data": "AAAA" * 1000, "media_type": "image/png"}
    row["parts"][0]["content"] = ["look", picture]

    assert parts(row) == [
        (
            "user",
            [
                {"type": "text", "text": "look"},
                {"type": "file", "mime": "image/png", "bytes": 3000},
            ],
        )
    ]


def test_a_coding_clis_turn_is_a_question_and_an_answer() -> None:
    turn = {"cli": {"prompt": "do", "answer": "done", "system": True}}

    assert [role for role, _ in parts(turn)] == ["user", "assistant"]


@pytest.mark.parametrize(
    "content",
    [
        user_row(f"my key is {SECRET}"),
        results_row(result_part("c", f"found {SECRET}")),
        answer_row({**call_part("c"), "args": {"deep": [{SECRET: SECRET}]}}),
        answer_row({**call_part("c"), "args": f'{{"key": "{SECRET}"}}'}),
        {"cli": {"prompt": SECRET, "answer": SECRET}},
        {"odd": [SECRET]},
        SECRET,
    ],
)
def test_secrets_are_nowhere_in_it(content: Any) -> None:
    assert SECRET not in json.dumps(lines(content))


@given(
    content=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_anything_in_the_store_is_a_line(content: Any) -> None:
    assert lines(content)[0]["role"] == "other"


async def a_session(db: Database, id: str, rows: int) -> None:
    async with db.write() as tx:
        await SessionRepo(db).start(
            tx, id=id, key=f"task:{id}", backend="fake", model="m", now=START
        )
        made = [
            {"session_id": id, "seq": n, "content": user_row(f"{n}"), "at": START}
            for n in range(1, rows + 1)
        ]
        if made:
            await tx.execute(insert(schema.messages), made)


async def test_a_long_session_is_written_whole_and_in_order(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as made:
        await a_session(made.db, "5e550001", 450)
        await a_session(made.db, "5e550002", 0)
        service = TranscriptService(TranscriptRepo(made.db), tmp_path, SecretMasker([]).mask)

        done = await service.export("5e550001")
        empty = await service.export("5e550002")

        assert (done.lines, empty.lines, empty.size) == (450, 0, 0)
        text = (tmp_path / done.path).read_text()
        assert [json.loads(line)["parts"][0]["text"] for line in text.splitlines()] == [
            str(n) for n in range(1, 451)
        ]
        assert (tmp_path / done.path).stat().st_mode & 0o077 == 0
        assert (await service.export("5e550001")).size == done.size
        assert {each.message_count for each in await service.list_recent(10)} == {450, 0}
        for wrong in ("5e55", "nobody", "", "../x"):
            with pytest.raises((NotFound, AmbiguousId)):
                await service.export(wrong)
