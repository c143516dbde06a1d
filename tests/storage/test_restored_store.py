from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from storage.messages.outbox import OutgoingCard
from storage.records.messages import DeliveryUrgency, IncomingMessage, IncomingPress
from storage.records.people import ApiToken, Channel, PersonId, WebSession
from storage.restore import find_restore, list_chats_with_held, settle_restored
from storage.web_sessions import WebSessionRepo
from tests.migrated_database import database_file, open_database
from tests.postgresql_server import sqlite_only
from tests.storage.message_store import START, MessageStore, place, sender

pytestmark = sqlite_only("a backup is settled as a file")

LATER = START + timedelta(days=2)


async def test_what_waited_is_neither_sent_nor_handled_and_is_told_once(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        await room.person()
        chat = await room.chat()
        async with db.write() as tx:
            for key in ("one", "two"):
                card = OutgoingCard(
                    key=key, chat_id=chat.id, card={"title": key}, urgency=DeliveryUrgency.ANSWER
                )
                await room.outbox.add(tx, card, now=START)
            for number in range(30):
                said = IncomingMessage(
                    place=place(),
                    sender=sender(),
                    message_id=str(number),
                    text=f"please do  {number}",
                    addressed=True,
                    sent_at=START,
                )
                dedupe = f"m{number}"
                await room.inbox.accept(tx, said, dedupe=dedupe, chat_id=chat.id, now=START)
            press = IncomingPress(place=place(), sender=sender(), token="t", message_id="9")
            await room.inbox.accept(tx, press, dedupe="p", chat_id=chat.id, now=START)

    record = settle_restored(
        database_file(tmp_path), backup_at=START, now=LATER, reason="was restored"
    )

    assert (record.unsent, record.unhandled_count, record.presses) == (2, 30, 1)
    assert len(record.unhandled) == 20
    assert record.unhandled[0].endswith("please do 0")
    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        assert await room.inbox.list_unfinished() == ()
        async with db.read() as view:
            held, total = await room.inbox.list_held(view, chat.id, limit=3)
        assert total == 30
        assert isinstance(held[0].incoming, IncomingMessage)
        assert held[0].incoming.text == "please do  0"
        assert await list_chats_with_held(db) == [chat.id]
        assert await room.outbox.count_queued() == 0
        assert (await room.outbox.list_due(Channel.TELEGRAM, now=LATER)).deliveries == ()
        found = await find_restore(room.key_values)
        assert found is not None
        assert (found.id, found.restored_at) == (record.id, LATER)
        # A newer revision of the same card is shown as usual.
        async with db.write() as tx:
            card = OutgoingCard(
                key="one", chat_id=chat.id, card={"title": "1"}, urgency=DeliveryUrgency.ANSWER
            )
            await room.outbox.put(tx, card, now=LATER)
        assert await room.outbox.count_queued() == 1


async def test_a_restored_store_lets_no_browser_in(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        room, sessions = MessageStore(db), WebSessionRepo(db)
        await room.people.ensure_owners((), now=START)
        session = WebSession(
            id="s1",
            person_id=PersonId(""),
            created_at=START,
            seen_at=START,
            expires_at=LATER,
            user_agent="Firefox",
        )
        await sessions.add(session, cookie_hash="c", token_mark="t", replaced="")
        owner = (await sessions.get_local_visitor()).person.id
        token = ApiToken(id="t1", person_id=owner, name="script", created_at=START)
        await sessions.add_token(token, secret_hash="k")

    settle_restored(database_file(tmp_path), backup_at=START, now=START, reason="was restored")

    async with open_database(tmp_path) as db:
        assert await WebSessionRepo(db).find("c", now=START) == (None, None)
        assert await WebSessionRepo(db).find_token("k") == (None, None)


async def test_settling_again_replaces_the_record_and_changes_nothing_else(tmp_path: Path) -> None:
    async with open_database(tmp_path):
        pass
    first = settle_restored(database_file(tmp_path), backup_at=START, now=LATER, reason="x")
    second = settle_restored(database_file(tmp_path), backup_at=START, now=LATER, reason="x")

    assert first.id != second.id
    with closing(sqlite3.connect(database_file(tmp_path))) as db:
        query = "SELECT count(*) FROM marks WHERE name = 'store.restored'"
        assert db.execute(query).fetchone() == (1,)
