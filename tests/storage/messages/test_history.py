from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from storage.messages.history import ReceivedMessage, recent_turns
from storage.messages.outbox import OutgoingCard
from storage.records.messages import DeliveryUrgency, Incoming, IncomingPress
from tests.storage.message_store import MessageStore, group, message, place, sender


async def say(room: MessageStore, incoming: Incoming, dedupe: str) -> None:
    chat = await room.chat(incoming.place)
    async with room.db.write() as tx:
        await room.inbox.accept(tx, incoming, dedupe=dedupe, chat_id=chat.id, now=room.now)


async def told(room: MessageStore, limit: int = 50, before: datetime | None = None) -> list[str]:
    chat = await room.chat()
    return [
        str(getattr(turn.row.incoming, "text", ""))
        if isinstance(turn, ReceivedMessage)
        else str(turn.row.card["title"])
        for turn in await recent_turns(room.db, chat.id, limit, before)
    ]


async def test_a_conversation_reads_in_the_order_it_was_held(room: MessageStore) -> None:
    chat = await room.chat()
    for number in range(3):
        await say(room, message(f"ask {number}"), f"m{number}")
        room.advance(seconds=1)
        await room.put(chat, f"answer {number}", key=f"k{number}")
        room.advance(seconds=1)

    assert await told(room) == ["ask 0", "answer 0", "ask 1", "answer 1", "ask 2", "answer 2"]
    newest = await recent_turns(room.db, chat.id, 3)
    assert await told(room, 3) == ["answer 1", "ask 2", "answer 2"]
    assert await told(room, 2, newest[0].at) == ["answer 0", "ask 1"]


async def test_what_programs_ask_quietly_is_no_part_of_it(room: MessageStore) -> None:
    await say(room, message("aloud"), "m1")
    await say(room, replace(message("quietly"), quiet=True), "m2")

    assert await told(room, 1) == ["aloud"]


async def test_what_the_house_tells_a_worker_is_no_part_of_it(room: MessageStore) -> None:
    await say(room, message("aloud"), "m1")
    await say(room, replace(message(""), told="Your helpers report"), "m2")

    assert await told(room) == ["aloud"]


async def test_presses_other_chats_dead_letters_and_empty_rows_are_no_part_of_it(
    room: MessageStore,
) -> None:
    chat = await room.chat()
    await say(room, IncomingPress(place=place(), sender=sender(), token="t", message_id="m"), "p")
    await say(room, message("elsewhere", place=group()), "e")
    posted = await room.put(chat, "dead", key="dead")
    async with room.db.write() as tx:
        tried = await room.outbox.begin_attempt(tx, posted.id)
        empty = OutgoingCard(key="r", chat_id=chat.id, card={}, urgency=DeliveryUrgency.ANSWER)
        await room.outbox.reserve(tx, empty, now=room.now)
    assert tried is not None
    await room.outbox.mark_dead(tried, error="gone")
    await say(room, message("kept"), "k")

    assert await told(room) == ["kept"]
