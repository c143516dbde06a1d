from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.messages.inbox import dump_incoming, load_incoming
from storage.records.messages import (
    AttachmentKind,
    InboxId,
    InboxRow,
    InboxState,
    Incoming,
    IncomingChatOpen,
    IncomingPress,
    OutboxState,
    RemoteFile,
)
from tests.migrated_database import open_database
from tests.storage.message_store import MessageStore, group, message, place, sender

_PICTURE = RemoteFile(kind=AttachmentKind.IMAGE, reference={"id": "f1"}, name="a.png", size=9)


def everything() -> Iterator[Incoming]:
    yield message("你好 🌱\n\t", attachments=(_PICTURE,), reply_to="m0", edited=True)
    yield IncomingPress(
        place=group(thread="7", title="T"),
        sender=sender(name="Lin", language="zh-hans"),
        token="abc",
        message_id="m1",
        value="#2",
        form={"text": "do it"},
    )
    yield IncomingChatOpen(place=place(), sender=sender())


async def accept(
    room: MessageStore, text: str = "hi", *, dedupe: str, **rest: Any
) -> InboxRow | None:
    chat = await room.chat()
    async with room.db.write() as tx:
        return await room.inbox.accept(
            tx, message(text), dedupe=dedupe, chat_id=chat.id, now=room.now, **rest
        )


async def settle(room: MessageStore, row: InboxRow) -> None:
    async with room.db.write() as tx:
        await room.inbox.settle(tx, {row.id: "card reply:1"}, now=room.now)


@pytest.mark.parametrize("incoming", [*everything()], ids=lambda each: each.kind)
def test_everything_that_arrives_survives_the_row(incoming: Incoming) -> None:
    assert load_incoming(dump_incoming(incoming)) == incoming


async def test_a_message_is_stored_once(room: MessageStore) -> None:
    first = await accept(room, "hi", dedupe="1")
    again = await accept(room, "hi", dedupe="1")

    assert first is not None
    assert again is None
    assert await room.inbox.list_unfinished() == (first,)


async def test_a_handled_message_is_still_known_when_it_comes_again(room: MessageStore) -> None:
    row = await accept(room, dedupe="1")
    assert row is not None
    await settle(room, row)
    room.advance(hours=12)
    await room.inbox.prune(now=room.now)

    assert await accept(room, dedupe="1") is None


async def test_unfinished_rows_come_back_in_order_after_a_restart(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        for number in range(4):
            row = await accept(room, f"say {number}", dedupe=str(number))
            assert row is not None
            if number == 1:
                await settle(room, row)

    async with open_database(tmp_path) as db:
        left = await MessageStore(db).inbox.list_unfinished()

    assert [getattr(row.incoming, "text", "") for row in left] == ["say 0", "say 2", "say 3"]


async def test_attempts_are_counted_before_they_are_made_and_over_restarts(
    tmp_path: Path,
) -> None:
    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        row = await accept(room, dedupe="1")
        assert row is not None
        assert await room.inbox.count_attempt(row.id) == 1

    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        assert [each.attempts for each in await room.inbox.list_unfinished()] == [1]
        assert await room.inbox.count_attempt(row.id) == 2


async def test_a_settled_row_is_not_begun_again(room: MessageStore) -> None:
    row = await accept(room, dedupe="1")
    assert row is not None
    await settle(room, row)

    assert await room.inbox.count_attempt(row.id) == 0
    assert await room.inbox.count_attempt(InboxId(99)) == 0


async def test_what_failed_for_good_is_not_taken_up_again(room: MessageStore) -> None:
    row = await accept(room, dedupe="1")
    assert row is not None
    async with room.db.write() as tx:
        await room.inbox.settle(tx, {row.id: "card reply:1"}, error="boom", now=room.now)

    assert await room.inbox.list_unfinished() == ()


async def test_what_is_stored_as_handled_is_never_taken_up(room: MessageStore) -> None:
    row = await accept(room, dedupe="1", state=InboxState.HANDLED)

    assert row is not None
    assert await room.inbox.list_unfinished() == ()


async def test_a_week_later_settled_rows_are_forgotten_and_unsettled_ones_are_not(
    room: MessageStore,
) -> None:
    settled = await accept(room, dedupe="1")
    left = await accept(room, dedupe="2")
    assert settled is not None
    await settle(room, settled)
    room.advance(days=7, seconds=1)

    assert await room.inbox.prune(now=room.now) == 1
    assert await room.inbox.list_unfinished() == (left,)


async def test_the_newest_events_are_listed_with_the_state_of_their_answers(
    room: MessageStore,
) -> None:
    answered, failed, waits = [await accept(room, text, dedupe=text) for text in "abc"]
    assert answered
    assert failed
    assert waits
    await room.put(await room.chat(), "the answer", key="reply:1")
    await settle(room, answered)
    async with room.db.write() as tx:
        await room.inbox.settle(tx, {failed.id: "card reply:9"}, now=room.now, error="broken")

    events = await room.inbox.list_recent(3)

    assert [(each.row.id, each.row.state, each.answer) for each in events] == [
        (waits.id, InboxState.NEW, None),
        (failed.id, InboxState.FAILED, None),
        (answered.id, InboxState.HANDLED, OutboxState.QUEUED),
    ]
    assert [each.row.id for each in await room.inbox.list_recent(1)] == [waits.id]


async def test_answered_shell_commands_are_not_listed(room: MessageStore) -> None:
    await accept(room, "/inbox", dedupe="1", state=InboxState.HANDLED, outcome="shell")

    assert await room.inbox.list_recent(5) == ()
