from __future__ import annotations

import pytest

from tests.storage.mail_room import Room


async def test_a_mark_is_what_was_last_put(room: Room) -> None:
    await room.marks.put("feishu.calls", {"month": "2026-03", "n": 1})
    await room.marks.put("feishu.calls", {"month": "2026-03", "n": 2})

    assert await room.marks.get("feishu.calls") == {"month": "2026-03", "n": 2}


async def test_a_mark_never_put_is_none(room: Room) -> None:
    assert await room.marks.get("nothing") is None


async def test_a_mark_put_in_a_transaction_that_fails_was_not_put(room: Room) -> None:
    with pytest.raises(LookupError):
        await _put_and_fail(room)

    assert await room.marks.get("a") is None


async def _put_and_fail(room: Room) -> None:
    async with room.db.write() as tx:
        await room.marks.write(tx, "a", 1)
        raise LookupError
