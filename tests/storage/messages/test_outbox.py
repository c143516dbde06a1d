from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import StoreUnavailable
from storage.messages.outbox import DeliveryAttempt, OutgoingCard
from storage.records.messages import (
    UNREACHABLE_ERROR,
    ChatAddress,
    DeliveryUrgency,
    MessagePlacement,
    OutboxId,
)
from storage.records.people import Channel, Chat, ChatKind
from tests.migrated_database import open_database
from tests.postgresql_server import sqlite_only
from tests.storage.message_store import MessageStore, group, place, sender

CLOSED = f"{UNREACHABLE_ERROR}: the chat is closed"


async def begin(room: MessageStore, outbox_id: OutboxId) -> DeliveryAttempt:
    async with room.db.write() as tx:
        tried = await room.outbox.begin_attempt(tx, outbox_id)
    assert tried is not None
    return tried


async def show(room: MessageStore, outbox_id: OutboxId, message_id: str = "m9") -> None:
    tried = await begin(room, outbox_id)
    await room.outbox.mark_shown(
        tried,
        MessagePlacement(message_ids=(message_id,), state={"seq": 1}),
        revision=tried.row.revision,
        now=room.now,
    )


async def heads(room: MessageStore) -> list[OutboxId]:
    return [
        each.id for each in (await room.outbox.list_due(Channel.TELEGRAM, now=room.now)).deliveries
    ]


async def test_the_same_card_under_the_same_key_changes_nothing(room: MessageStore) -> None:
    chat = await room.chat()
    first = await room.put(chat, "one")

    again = await room.put(chat, "one")

    assert (again.id, again.revision, again.changed) == (first.id, 1, False)


async def test_a_different_card_is_a_new_revision_of_the_same_message(room: MessageStore) -> None:
    chat = await room.chat()
    first = await room.put(chat, "one")

    second = await room.put(chat, "two", urgency=DeliveryUrgency.APPROVAL)

    assert (second.id, second.revision, second.changed) == (first.id, 2, True)
    row = await room.outbox.find_by_key("k")
    assert row is not None
    assert (row.card, row.urgency) == ({"title": "two"}, DeliveryUrgency.ANSWER)


async def test_a_shown_card_has_nothing_more_to_show_until_it_changes(room: MessageStore) -> None:
    chat = await room.chat()
    posted = await room.put(chat, "one")
    await show(room, posted.id)

    assert await heads(room) == []
    async with room.db.write() as tx:
        assert await room.outbox.begin_attempt(tx, posted.id) is None
    await room.put(chat, "two")
    assert await heads(room) == [posted.id]
    tried = await begin(room, posted.id)
    assert tried.row.placement == MessagePlacement(message_ids=("m9",), state={"seq": 1})


async def test_a_revision_made_while_the_last_was_on_its_way_is_still_to_be_shown(
    room: MessageStore,
) -> None:
    chat = await room.chat()
    posted = await room.put(chat, "one")
    tried = await begin(room, posted.id)
    await room.put(chat, "two")

    await room.outbox.mark_shown(
        tried, MessagePlacement(message_ids=("m",)), revision=1, now=room.now
    )

    assert await heads(room) == [posted.id]
    assert (await begin(room, posted.id)).row.card == {"title": "two"}


async def test_each_chat_offers_its_most_urgent_then_oldest_letter(room: MessageStore) -> None:
    one, two = await room.chat(place("1"), sender("1")), await room.chat(place("2"), sender("2"))
    topic = await room.chat(group(thread="7"))
    other_topic = await room.chat(group(thread="8"))
    await room.put(one, key="a", urgency=DeliveryUrgency.PROGRESS)
    notice = await room.put(two, key="b", urgency=DeliveryUrgency.NOTICE)
    answer = await room.put(one, key="c", urgency=DeliveryUrgency.ANSWER)
    await room.put(one, key="d", urgency=DeliveryUrgency.ANSWER)
    approval = await room.put(topic, key="e", urgency=DeliveryUrgency.APPROVAL)
    await room.put(other_topic, key="f", urgency=DeliveryUrgency.APPROVAL)

    assert await heads(room) == [answer.id, approval.id, notice.id]
    assert await room.outbox.count_queued() == 6
    assert (await room.outbox.list_due(Channel.FEISHU, now=room.now)).deliveries == ()


async def test_progress_of_one_card_does_not_starve_that_of_another(room: MessageStore) -> None:
    chat = await room.chat()
    shown: list[str] = []
    for second in range(12):
        for key in ("a", "b", "c"):
            await room.put(chat, f"{second} s", key=key, urgency=DeliveryUrgency.PROGRESS)
        (head,) = await heads(room)
        found = await room.outbox.get(head)
        assert found is not None
        shown.append(found[0].key)
        await show(room, head, f"m{head}")
        room.advance(seconds=1)

    assert shown == ["a", "b", "c"] * 4


async def test_progress_waits_until_its_card_may_be_edited_and_a_result_does_not(
    room: MessageStore,
) -> None:
    chat = await room.chat()
    posted = await room.put(chat, "queued", urgency=DeliveryUrgency.NOTICE)
    tried = await begin(room, posted.id)
    later = room.now + timedelta(seconds=5)
    placed = MessagePlacement(message_ids=("m",))
    await room.outbox.mark_shown(tried, placed, revision=1, now=room.now, edit_at=later)

    await room.put(chat, "started", urgency=DeliveryUrgency.PROGRESS)
    await room.put(chat, "planned", urgency=DeliveryUrgency.PROGRESS)
    assert await heads(room) == []
    assert (await room.outbox.list_due(Channel.TELEGRAM, now=room.now)).next_due == later
    await room.put(chat, "finished", urgency=DeliveryUrgency.ANSWER)

    assert await heads(room) == [posted.id]
    assert (await begin(room, posted.id)).row.card == {"title": "finished"}


async def test_a_flood_of_answers_does_not_starve_files_for_ever(room: MessageStore) -> None:
    chat = await room.chat()
    files = await room.put(chat, key="files", urgency=DeliveryUrgency.FILES)
    shown = []
    for minute in range(7):
        await room.put(chat, key=f"answer {minute}")
        (head,) = await heads(room)
        shown.append(head == files.id)
        await show(room, head, f"m{head}")
        room.advance(seconds=60)

    assert shown == [False] * 5 + [True, False]


async def test_files_stay_queued_behind_the_answers_of_others(room: MessageStore) -> None:
    chat = await room.chat()
    result = await room.put(chat, "result", key="result")
    tried = await begin(room, result.id)
    placed = MessagePlacement(message_ids=("m1",))
    await room.outbox.mark_shown(tried, placed, revision=1, now=room.now, files_left=True)

    answer = await room.put(chat, "answer", key="answer")
    assert await heads(room) == [answer.id]
    await show(room, answer.id, "m2")
    files = await begin(room, result.id)
    assert files.files_only
    assert files.possibly_shown_revision == 0
    killed = await begin(room, result.id)
    assert killed.possibly_shown_revision == 1
    both = MessagePlacement(message_ids=("m1", "m3"))
    await room.outbox.mark_shown(killed, both, revision=1, now=room.now)

    assert await heads(room) == []


async def test_a_newer_card_is_shown_before_the_files_of_the_older_one(room: MessageStore) -> None:
    chat = await room.chat()
    posted = await room.put(chat, "one")
    tried = await begin(room, posted.id)
    placed = MessagePlacement(message_ids=("m1",))
    await room.outbox.mark_shown(tried, placed, revision=1, now=room.now, files_left=True)

    await room.put(chat, "two")

    again = await begin(room, posted.id)
    assert not again.files_only
    assert again.row.card == {"title": "two"}


async def test_what_is_put_off_is_due_again_in_time(room: MessageStore) -> None:
    chat = await room.chat()
    posted = await room.put(chat)
    tried = await begin(room, posted.id)
    due = room.now + timedelta(seconds=8)
    await room.outbox.retry_later(tried, now=room.now, due=due, error="503", may_have_arrived=False)

    assert await heads(room) == []
    assert (await room.outbox.list_due(Channel.TELEGRAM, now=room.now)).next_due == due
    room.advance(seconds=8)
    assert await heads(room) == [posted.id]
    assert (await begin(room, posted.id)).row.attempts == 2


async def test_a_clock_set_back_holds_nothing_up(room: MessageStore) -> None:
    chat = await room.chat()
    posted = await room.put(chat)
    tried = await begin(room, posted.id)
    due = room.now + timedelta(seconds=8)
    await room.outbox.retry_later(tried, now=room.now, due=due, error="", may_have_arrived=False)

    room.advance(hours=-1)
    assert await heads(room) == [posted.id]

    tried = await begin(room, posted.id)
    due = room.now + timedelta(seconds=8)
    await room.outbox.retry_later(tried, now=room.now, due=due, error="", may_have_arrived=False)
    assert await heads(room) == [], "the new clock counts from the next try on"


async def test_new_words_do_not_hurry_what_is_put_off(room: MessageStore) -> None:
    chat = await room.chat()
    posted = await room.put(chat)
    tried = await begin(room, posted.id)
    due = room.now + timedelta(seconds=8)
    await room.outbox.retry_later(tried, now=room.now, due=due, error="503", may_have_arrived=False)

    await room.put(chat, "two")

    assert await heads(room) == []
    assert (await room.outbox.list_due(Channel.TELEGRAM, now=room.now)).next_due == due


@pytest.mark.parametrize("may_have_arrived", [True, False])
async def test_only_a_doubtful_try_makes_the_next_one_a_repeat(
    room: MessageStore, may_have_arrived: bool
) -> None:
    chat = await room.chat()
    posted = await room.put(chat)
    tried = await begin(room, posted.id)
    await room.outbox.retry_later(
        tried, now=room.now, due=room.now, error="?", may_have_arrived=may_have_arrived
    )

    assert (await begin(room, posted.id)).possibly_shown_revision == int(may_have_arrived)


async def test_a_kill_between_trying_and_showing_makes_the_next_try_a_repeat(
    tmp_path: Path,
) -> None:
    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        posted = await room.put(await room.chat())
        await begin(room, posted.id)

    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        assert await heads(room) == [posted.id]
        assert (await begin(room, posted.id)).row.maybe_delivered


async def test_doubt_about_a_first_send_stays_with_the_revision_that_was_sent(
    room: MessageStore,
) -> None:
    chat = await room.chat()
    posted = await room.put(chat, "one")
    tried = await begin(room, posted.id)
    await room.outbox.retry_later(
        tried, now=room.now, due=room.now, error="cut", may_have_arrived=True
    )
    await room.put(chat, "two")
    tried = await begin(room, posted.id)
    await room.outbox.retry_later(
        tried, now=room.now, due=room.now, error="429", may_have_arrived=False
    )

    assert (await begin(room, posted.id)).possibly_shown_revision == 1


async def test_a_dead_letter_is_not_offered_until_it_says_something_new(room: MessageStore) -> None:
    chat = await room.chat()
    posted = await room.put(chat, "one")
    await room.outbox.mark_dead(await begin(room, posted.id), error="blocked")

    assert await heads(room) == []
    await room.put(chat, "one")
    assert await heads(room) == []
    await room.put(chat, "two")
    assert (await begin(room, posted.id)).row.attempts == 1


async def test_giving_up_an_old_revision_spares_a_newer_one(room: MessageStore) -> None:
    chat = await room.chat()
    posted = await room.put(chat, "one")
    tried = await begin(room, posted.id)
    await room.put(chat, "two")

    await room.outbox.mark_dead(tried, error="refused")

    assert await heads(room) == [posted.id]


async def test_giving_up_an_old_address_spares_the_new_one(room: MessageStore) -> None:
    account = sender("ou_1")
    await room.person("ou_1", channel=Channel.FEISHU)
    unopened = ChatAddress(channel=Channel.FEISHU, chat="ou_1", kind=ChatKind.PRIVATE)
    chat = await room.chat(unopened, account)
    posted = await room.put(chat, "one")
    tried = await begin(room, posted.id)
    await room.chat(replace(unopened, chat="oc_1"), account)

    await room.outbox.mark_dead(tried, error=CLOSED)

    assert (await begin(room, posted.id)).chat.external_id == "oc_1"


async def give_up(room: MessageStore, chat: Chat, error: str = CLOSED) -> OutboxId:
    posted = await room.put(chat, "one")
    await room.outbox.mark_dead(await begin(room, posted.id), error=error)
    assert await heads(room) == []
    return posted.id


async def test_what_a_closed_chat_refused_is_due_when_its_person_opens_it(
    room: MessageStore,
) -> None:
    await room.person()
    given_up = await give_up(room, await room.chat(place(thread="7")))

    room.advance(days=29)
    await room.chat()

    assert await heads(room) == [given_up]


async def test_a_person_who_opens_the_chat_during_a_delivery_gets_it_again(
    room: MessageStore,
) -> None:
    await room.person()
    posted = await room.put(await room.chat(), "one")
    tried = await begin(room, posted.id)
    await room.chat()

    await room.outbox.mark_dead(tried, error=CLOSED)

    assert await heads(room) == [posted.id]


@pytest.mark.parametrize(
    ("who", "error", "days"), [("42", "refused", 0), ("", CLOSED, 0), ("42", CLOSED, 31)]
)
async def test_refused_and_old_messages_and_those_of_strangers_stay_given_up(
    room: MessageStore, who: str, error: str, days: int
) -> None:
    if who:
        await room.person(who)
    await give_up(room, await room.chat(), error)

    room.advance(days=days)
    await room.chat()

    assert await heads(room) == []


async def test_a_card_is_found_by_the_message_that_shows_it(room: MessageStore) -> None:
    chat = await room.chat(group(thread="7"))
    posted = await room.put(chat)
    await show(room, posted.id, "m9")

    found = await room.outbox.find_by_platform_message(Channel.TELEGRAM, "-100", "m9")

    assert found is not None
    assert found.id == posted.id
    assert await room.outbox.find_by_platform_message(Channel.TELEGRAM, "-100", "m1") is None
    assert await room.outbox.find_by_platform_message(Channel.TELEGRAM, "-200", "m9") is None


async def test_copies_of_a_card_are_found_by_the_beginning_of_their_key(room: MessageStore) -> None:
    chat = await room.chat()
    for key in ("pairing:A_1:x", "pairing:A_1:y", "pairing:AB1:x", "pairing:a_1:z"):
        await room.put(chat, key=key)

    found = await room.outbox.list_by_prefix("pairing:A_1:")

    assert [key for key, _ in found] == ["pairing:A_1:x", "pairing:A_1:y"]


async def test_a_reserved_row_shows_nothing_until_it_gets_a_card(room: MessageStore) -> None:
    chat = await room.chat()
    new = OutgoingCard(
        key="k", chat_id=chat.id, card={}, urgency=DeliveryUrgency.ANSWER, reply_to="m1"
    )
    async with room.db.write() as tx:
        reserved = await room.outbox.reserve(tx, new, now=room.now)
        assert await room.outbox.reserve(tx, new, now=room.now) == reserved
    assert await heads(room) == []

    posted = await room.put(chat, "answer")

    assert (posted.id, posted.revision) == (reserved.id, 1)
    assert (await begin(room, posted.id)).row.reply_to == "m1"


@sqlite_only("its limit of pages")
async def test_a_full_disk_is_told_as_such_and_leaves_the_row(room: MessageStore) -> None:
    chat = await room.chat()
    await room.put(chat, "one")
    async with room.db.write() as tx:
        pages = (await tx.exec_driver_sql("PRAGMA page_count")).scalar_one()
    # The writer is one connection, so a limit set on it holds for the next write.
    async with room.db.write() as tx:
        await tx.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    with pytest.raises(StoreUnavailable, match="full"):
        await room.put(chat, "x" * 1_000_000)

    row = await room.outbox.find_by_key("k")
    assert row is not None
    assert row.card == {"title": "one"}


_STEPS = st.lists(st.sampled_from(["put", "begin", "shown", "lost", "later", "dead"]), max_size=24)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STEPS)
async def test_however_puts_and_deliveries_interleave_the_newest_is_shown_and_none_older_after_it(
    steps: list[str],
) -> None:
    screen: list[int] = []
    newest = 0
    with tempfile.TemporaryDirectory() as folder:
        async with open_database(Path(folder)) as db:
            room = MessageStore(db)
            chat = await room.chat()
            trying: DeliveryAttempt | None = None
            for step in steps:
                if step == "put":
                    newest += 1
                    await room.put(chat, newest)
                elif step == "begin" and trying is None and await heads(room):
                    trying = await begin(room, (await heads(room))[0])
                elif trying is not None and step != "begin":
                    await _end(room, trying, step, screen)
                    trying = None
            newest += 1
            await room.put(chat, newest)
            while waiting := await heads(room):
                await _end(room, await begin(room, waiting[0]), "shown", screen)

    assert screen[-1] == newest
    assert screen == sorted(screen)


async def _end(room: MessageStore, trying: DeliveryAttempt, how: str, screen: list[Any]) -> None:
    number = trying.row.card["title"]
    match how:
        case "shown":
            screen.append(number)
            placed = MessagePlacement(message_ids=("m",))
            await room.outbox.mark_shown(trying, placed, revision=trying.row.revision, now=room.now)
        case "lost":
            screen.append(number)
            await room.outbox.retry_later(
                trying, now=room.now, due=room.now, error="", may_have_arrived=True
            )
        case "later":
            await room.outbox.retry_later(
                trying, now=room.now, due=room.now, error="", may_have_arrived=False
            )
        case _:
            await room.outbox.mark_dead(trying, error="")
