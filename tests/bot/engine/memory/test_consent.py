"""Tests what goes when the last message is forbidden, and that what it replaced holds again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update

from bot.engine.memory.consent import MemoryConsent
from bot.engine.memory.ingestion import ConversationTurn
from storage.dialect import dump_json
from storage.key_value import KeyValueStore
from storage.memory.withheld_turns import WithheldTraces, WithheldTurnRepo
from storage.messages.inbox import dump_incoming
from storage.messages.outbox import OutboxRepo, OutgoingCard
from storage.records.memory import MemoryKind, MemoryState
from storage.records.messages import (
    AttachmentKind,
    ChatAddress,
    DeliveryUrgency,
    IncomingMessage,
    MessageSender,
    OutboxState,
    RemoteFile,
)
from storage.records.people import Channel, ChatKind
from storage.records.schedules import (
    Interval,
    MessageBody,
    NewSchedule,
    ScheduleId,
    ScheduleKind,
    ScheduleState,
)
from storage.schedules import ScheduleRepo
from storage.schema import commands, inbox, outbox, tasks
from storage.sessions import SessionRepo
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.memory.writing_builders import MY_SCOPE, WritingSetup, build_writing
from tests.engine_harness import BOSS, CHAT, GROUP


async def say(
    memory: WritingSetup, number: int, text: str, *, edits: int = 0, upload: str = ""
) -> None:
    now = memory.world.clock()
    place = ChatAddress(channel=Channel.WEB, chat="c", kind=ChatKind.PRIVATE)
    file = RemoteFile(kind=AttachmentKind.FILE, reference={"path": upload}, name="a.txt")
    said = IncomingMessage(
        place=place,
        sender=MessageSender(external_id="boss"),
        message_id=f"m{edits or number}",
        text=text,
        addressed=True,
        sent_at=now,
        edited=bool(edits),
        attachments=(file,) if upload else (),
    )
    row = {
        "id": number,
        "channel": Channel.WEB.value,
        "dedupe": f"m{number}",
        "chat_id": CHAT.id,
        "incoming": dump_incoming(said),
        "state": "handled",
        "received_at": now,
        "handled_at": now,
    }
    turn = ConversationTurn(
        person=BOSS, chat=CHAT, user_text=text, assistant_text="", source=f"inbox:{number}", at=now
    )
    async with memory.world.db.write() as tx:
        await tx.execute(insert(inbox).values(row))
        is_wish = text.lower().startswith(("forget", "what i say next"))
        if not (is_wish or edits):
            await memory.recorder.record_turn(tx, turn, [])


def build_consent(memory: WritingSetup) -> MemoryConsent:
    db = memory.world.db
    return MemoryConsent(
        db=db,
        entries=memory.entries,
        cells=memory.cells,
        withheld=WithheldTurnRepo(db),
        sessions=SessionRepo(db),
        recorder=memory.recorder,
        key_values=KeyValueStore(db),
        feed=memory.feed,
        now=memory.world.clock,
    )


async def test_a_message_that_is_edited_to_forbid_it_goes_as_it_was_too(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        await say(memory, 1, "Remember that my cat is called Findus")
        await say(memory, 2, "Remember that my code is 4711")
        await say(memory, 3, "Don't remember that my code is 4711", edits=2)

        await build_consent(memory).withhold_this(CHAT, "inbox:3")

        left = await memory.entries.list((MY_SCOPE,), states=tuple(MemoryState))
        assert not [each for each in left if "4711" in each.text]
        assert [each for each in left if "Findus" in each.text]
        withheld = await WithheldTurnRepo(memory.world.db).get(CHAT.id)
        assert withheld is not None
        assert withheld.inbox == (2, 3)


async def test_what_the_forbidden_words_replaced_holds_again(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        consent = build_consent(memory)
        await say(memory, 1, "Remember that my city is Paris")
        await say(memory, 2, "Remember that my city is Berlin")
        await say(memory, 3, "forget what I just said")

        done = await consent.withhold_before(CHAT, "inbox:3", "")

        assert done
        left = await memory.entries.list((MY_SCOPE,), states=tuple(MemoryState))
        assert not [each for each in left if "Berlin" in each.text]
        paris = [each for each in left if each.text == "my city is Paris"]
        assert [each.state for each in paris] == [MemoryState.ACTIVE]
        assert not await consent.withhold_before(CHAT, "inbox:1", ""), "nothing came before"


async def test_the_file_that_the_web_chat_kept_before_the_message_goes_too(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        await say(memory, 1, "my passport", upload="files/inbox/0192-aaaa/a.txt")
        await say(memory, 2, "another", upload="files/inbox/0192-bbbb/a.txt")
        await say(memory, 3, "forget what I just said")

        await build_consent(memory).withhold_before(CHAT, "inbox:3", "")

        repo = WithheldTurnRepo(memory.world.db)
        withheld = await repo.get(CHAT.id)
        assert withheld is not None
        traces = await repo.find_traces(withheld)
        assert set(traces.folders) == {"files/inbox/2", "files/inbox/3", "files/inbox/0192-bbbb"}
        assert WithheldTraces.from_json(json.loads(dump_json(traces.to_json()))) == traces


async def test_a_reminder_that_nobody_agreed_to_goes_with_the_forbidden_words(
    tmp_path: Path,
) -> None:
    async with build_writing(tmp_path) as memory:
        db, now = memory.world.db, memory.world.clock()
        await say(memory, 1, "Remind me tomorrow to call the clinic, don't remember this")
        await build_consent(memory).withhold_this(CHAT, "inbox:1")
        schedules, repo = ScheduleRepo(db), WithheldTurnRepo(db)
        proposed = NewSchedule(
            kind=ScheduleKind.REMINDER,
            title="call the clinic",
            timing=Interval(every=timedelta(days=1), start=now),
            zone="UTC",
            body=MessageBody(text="call the clinic"),
            owner_id=BOSS.id,
            chat_id=CHAT.id,
            source=f"message:{CHAT.id}:m1",
        )
        async with db.write() as tx:
            await schedules.create(tx, proposed, new_id=lambda: "s1", now=now)
        withheld = await repo.get(CHAT.id)
        assert withheld is not None

        async with db.write() as tx:
            await repo.erase(tx, withheld)

        left = await schedules.get(ScheduleId("s1"))
        assert "clinic" not in f"{left.title} {left.body}"
        assert left.state is ScheduleState.ENDED


async def test_a_task_that_was_told_forbidden_words_loses_them_when_it_has_ended(
    tmp_path: Path,
) -> None:
    async with build_writing(tmp_path) as memory:
        db, now, repo = memory.world.db, memory.world.clock(), WithheldTurnRepo(memory.world.db)
        told = await memory.world.create_task("Water the plants")
        paused = await memory.world.create_task("Call the plumber")
        others = await memory.world.create_task("Paint the fence", chat_id=GROUP.id)
        await say(memory, 1, "/msg t1 don't remember this: egret5523")
        await say(memory, 3, "/update t3 don't remember this: egret5523")
        for number in (1, 3):
            await build_consent(memory).withhold_this(CHAT, f"inbox:{number}")
        async with db.write() as tx:
            given = ((told, "message", 1), (paused, "pause", 2), (others, "amend", 3))
            for task, kind, source in given:
                await memory.world.store.events.record_command(
                    tx, task.id, kind, source=f"inbox:{source}", by=BOSS.id, now=now,
                    payload={"said": "egret5523"},
                )  # fmt: skip
        withheld = await repo.get(CHAT.id)
        assert withheld is not None

        async with db.write() as tx:
            waits = not await repo.erase(tx, withheld)
            is_told = [await repo.is_task(tx, each.id) for each in (told, paused, others)]
            await tx.execute(update(tasks).values(status="completed", summary="egret5523 is wet"))
            done = await repo.erase(tx, withheld)
            left = (await tx.execute(select(tasks).where(tasks.c.id == told.id))).one()
            kept = (await tx.execute(select(tasks).where(tasks.c.id == others.id))).one()
            said = await tx.scalar(select(commands.c.payload).where(commands.c.task_id == told.id))

        assert waits, "it needs the words until it ends"
        assert is_told == [True, False, True]
        assert done
        assert (said, left.summary) == ({}, "")
        assert (left.title, left.deleted_at) == ("Water the plants", None)
        assert (kept.title, kept.summary) == ("Paint the fence", "egret5523 is wet")


async def test_no_card_takes_the_id_of_one_that_was_erased(tmp_path: Path) -> None:
    """An open page would take it for an older revision, and not show it."""
    async with build_writing(tmp_path) as memory:
        db, now = memory.world.db, memory.world.clock() + timedelta(seconds=1)
        await say(memory, 1, "Don't remember this: I wear a wig")
        await build_consent(memory).withhold_this(CHAT, "inbox:1")
        cards, repo = OutboxRepo(db), WithheldTurnRepo(db)
        answer = OutgoingCard(
            chat_id=CHAT.id, key="reply:1", urgency=DeliveryUrgency.ANSWER, card={}
        )
        async with db.write() as tx:
            erased = await cards.put(tx, answer, now=now)
            await tx.execute(update(outbox).values(state=OutboxState.SHOWN.value))
        withheld = await repo.get(CHAT.id)
        assert withheld is not None
        async with db.write() as tx:
            await repo.erase(tx, withheld)

        async with db.write() as tx:
            streamed = await cards.reserve(tx, replace(answer, key="reply:2"), now=now)
            put = await cards.put(tx, replace(answer, key="reply:3"), now=now)

        assert await cards.get(erased.id) is None
        assert erased.id < streamed.id < put.id


async def texts(memory: WritingSetup) -> str:
    left = await memory.entries.list((MY_SCOPE,), states=tuple(MemoryState))
    return " ".join(each.text for each in left)


async def test_what_was_withheld_in_doubt_comes_back_when_its_author_keeps_it(
    tmp_path: Path,
) -> None:
    async with build_writing(tmp_path) as memory:
        consent = build_consent(memory)
        await say(memory, 1, "Remember that my code is 4711")
        await say(memory, 2, "forget about it maybe, I live in Uppsala")
        await consent.withhold_this(CHAT, "inbox:2")
        with_before = await consent.withhold_before(CHAT, "inbox:2", "", is_sure=False)
        withheld = await texts(memory)

        kept = await consent.keep_after_all(BOSS, CHAT, "inbox:2", with_before=with_before)

        assert with_before
        assert withheld == ""
        assert kept
        assert "Uppsala" in await texts(memory)
        facts = await memory.entries.list((MY_SCOPE,), kinds=(MemoryKind.FACT,))
        assert [each.text for each in facts if "4711" in each.text], "what was drawn from it, too"
        assert await WithheldTurnRepo(memory.world.db).get(CHAT.id) is None


async def test_keeping_a_doubtful_message_keeps_none_that_was_forbidden(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        consent = build_consent(memory)
        await say(memory, 1, "My code is 4711, remember that for the next week")
        await consent.withhold_this(CHAT, "inbox:1")
        await say(memory, 2, "forget about it maybe, I live in Uppsala")
        await consent.withhold_this(CHAT, "inbox:2")

        with_before = await consent.withhold_before(CHAT, "inbox:2", "", is_sure=False)
        await consent.keep_after_all(BOSS, CHAT, "inbox:2", with_before=with_before)

        assert not with_before
        assert "4711" not in await texts(memory)
        withheld = await WithheldTurnRepo(memory.world.db).get(CHAT.id)
        assert withheld is not None
        assert withheld.inbox == (1,)


async def test_only_the_next_message_is_withheld_where_it_was_announced(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        consent = build_consent(memory)
        await say(memory, 1, "What I say next is off the record")
        await consent.expect_next(CHAT, "inbox:1")
        for number, text in enumerate(("hello", "I wear a wig", "I live in Uppsala"), 2):
            await say(memory, number, text)

        withheld = [await consent.withhold_expected(CHAT, f"inbox:{each}") for each in (2, 3, 4)]

        assert withheld == [False, True, False]
        assert "wig" not in await texts(memory)
        assert "Uppsala" in await texts(memory)


async def test_an_announcement_can_be_taken_back(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        consent = build_consent(memory)
        await say(memory, 1, "What I say next is off the record")
        await consent.expect_next(CHAT, "inbox:1")
        await say(memory, 2, "You can remember again")
        await say(memory, 3, "I live in Uppsala")

        taken_back = [await consent.expect_no_more(CHAT, "inbox:2") for _ in range(2)]

        assert taken_back == [True, False]
        assert not await consent.withhold_expected(CHAT, "inbox:3")


async def test_an_announced_message_stays_withheld_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build_writing(tmp_path) as memory:
        consent, death = build_consent(memory), CrashAfterCommit(1)
        await say(memory, 1, "What I say next is off the record")
        await consent.expect_next(CHAT, "inbox:1")
        await say(memory, 2, "I wear a wig")

        with monkeypatch.context() as mortal:
            death.install(mortal)
            await death.run_until_crash(consent.withhold_expected(CHAT, "inbox:2"))

        assert death.crashed.is_set()
        withheld = await WithheldTurnRepo(memory.world.db).get(CHAT.id)
        assert withheld is not None
        assert set(withheld.inbox) == {1, 2}
