from __future__ import annotations

import pytest

from tests.storage.message_store import MessageStore


async def test_a_mark_is_what_was_last_put(room: MessageStore) -> None:
    await room.key_values.put("feishu.calls", {"month": "2026-03", "n": 1})
    await room.key_values.put("feishu.calls", {"month": "2026-03", "n": 2})

    assert await room.key_values.get("feishu.calls") == {"month": "2026-03", "n": 2}


async def test_a_mark_never_put_is_none(room: MessageStore) -> None:
    assert await room.key_values.get("nothing") is None


async def test_a_mark_put_in_a_transaction_that_fails_was_not_put(room: MessageStore) -> None:
    with pytest.raises(LookupError):
        await _put_and_fail(room)

    assert await room.key_values.get("a") is None


async def _put_and_fail(room: MessageStore) -> None:
    async with room.db.write() as tx:
        await room.key_values.write(tx, "a", 1)
        raise LookupError
