"""Tests that words which must not be remembered are nowhere once their conversation has ended."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from storage.backup_archive import BackupSource, create_backup
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.journeys.model_world import (
    ModelWorld,
    ask,
    fill_form,
    held_reply,
    model_world,
    plan_reply,
    start_new_conversation,
    step_reply,
    wait_for_message,
    write_call,
)
from tests.journeys.program_store import open_store, store_place
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SWEPT_WITHIN = 40.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    at_once = "{extract: true, extract_after_seconds: 0}"
    async with model_world(home, "anthropic", SHIFTBOSS_MEMORY=at_once) as made:
        yield made


def files_with(home: Path, word: str) -> list[str]:
    """All files of the home that have the word, also the database with its free pages, its log, and
    what backups hold."""
    found = [each for each in home.rglob("*") if each.is_file()]
    return [str(each.relative_to(home)) for each in found if word.encode() in read_all(each)]


def read_all(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b""  # gone since the folder was listed
    return gzip.decompress(data) if path.name.endswith(".tar.gz") else data


def back_up(home: Path) -> Path:
    source = BackupSource(
        home=home,
        database=store_place(home),
        version="1",
        mask=lambda _name, text: text,
        secret_names=frozenset(),
    )
    return create_backup(source, home / "backups", now=datetime.now(UTC)).path


def is_swept(home: Path) -> bool:
    with open_store(home) as store:
        query = "select count(*) from marks where name like 'withheld:%'"
        return bool(store.execute(query).fetchone() == (0,))


async def wait_until_swept(world: ModelWorld) -> None:
    async def swept() -> bool:
        return await asyncio.to_thread(is_swept, world.program.home)

    await wait_until(swept, SWEPT_WITHIN)


def facts(*texts: str) -> Callable[[ReceivedRequest], ScriptedReply]:
    drawn = [
        {"category": "profile", "topic": "code", "text": each, "confidence": 0.95, "turns": [1]}
        for each in texts
    ]
    return fill_form(conversation_register="real", memories=drawn)


async def test_what_was_forbidden_in_the_same_message_leaves_with_the_conversation(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    answer = ScriptedReply(text="The heron7731 is a fine code.")
    world.script.script("heron7731", "talk", answer)
    world.script.script("otter4410", "talk", ScriptedReply(text="That must be hard."))
    world.script.script("a drink", "talk", ScriptedReply(text="Tea; and heron7731 again."))

    await boss.says(chat, "Don't remember this: my safe opens with heron7731")
    told = await wait_for_message(chat, "a fine code", "I won't remember this message")
    await boss.says(chat, "I see a doctor about otter4410, kindly leave that unrecorded")
    asked = await wait_for_message(chat, "must be hard", "May I remember this message?")
    await boss.says(chat, "Recommend me a drink for the afternoon please")
    await wait_for_message(chat, "Tea;")
    found = await ask(boss, chat, "/history search heron7731", "heron7731")
    await start_new_conversation(boss, chat)
    await wait_until_swept(world)

    assert told is not None
    assert asked is not None
    assert files_with(world.program.home, "otter4410") == []
    assert "fine code" not in found.text, "also not while the conversation goes on"
    assert files_with(world.program.home, "a fine code") == []
    # The search above was an order of its own, not a secret.
    assert files_with(world.program.home, "safe opens with heron7731") == []


async def test_what_was_drawn_before_it_was_forbidden_goes_and_does_not_come_back(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    said = "Remember that my locker opens with osprey9942"
    world.script.script(said, "talk", ScriptedReply(text="Noted, osprey9942."))
    world.script.script(said, "notes", facts("The locker opens with osprey9942"))
    await boss.says(chat, said)
    await wait_for_message(chat, "Noted, osprey9942.")
    await world.script.wait_for_request(said, "notes")

    await ask(boss, chat, "forget what I just said", "I have forgotten what you said before")
    await start_new_conversation(boss, chat)
    await wait_until_swept(world)
    world.script.script("open my locker", "talk", ScriptedReply(text="I do not know."))
    await boss.says(chat, "How do I open my locker over there?")
    await wait_for_message(chat, "I do not know.")

    asked = world.script.requests_for("open my locker", "talk")[-1]
    assert "osprey9942" not in str(asked.body)
    assert files_with(world.program.home, "osprey9942") == []


async def test_a_kill_between_the_words_and_the_cleanup_leaves_nothing(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    never = asyncio.Event()
    world.script.script("egret5523", "talk", held_reply(ScriptedReply(text="I see."), never))
    await boss.says(chat, "Off the record, the launch code is egret5523")
    await world.script.wait_for_request("egret5523", "talk")

    await world.program.kill()
    world.script.script("egret5523", "talk", ScriptedReply(text="It is between us."))
    never.set()
    await world.program.start()
    await wait_for_message(chat, "It is between us.")
    await start_new_conversation(boss, chat)
    await world.program.kill()
    await world.program.start()
    await wait_until_swept(world)

    assert files_with(world.program.home, "egret5523") == []


async def test_an_incognito_chat_ends_without_a_trace(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await ask(boss, chat, "/remember My boat is called Pelican", "Remembered as")
    await ask(boss, chat, "/incognito", "it is incognito")
    said = "My boat sank at plover6604, what now?"
    world.script.script(said, "talk", ScriptedReply(text="Call plover6604 harbour."))
    await boss.says(chat, said)
    await wait_for_message(chat, "Call plover6604", "🕶 Incognito")
    await ask(boss, chat, "/status", "This chat is incognito")
    await ask(boss, chat, "/memory search plover6604", "no memories about")

    await ask(boss, chat, "/new", "Incognito has ended")
    await wait_until_swept(world)

    asked = world.script.requests_for(said, "talk")[-1]
    assert "Pelican" not in str(asked.body), "no memories are used"
    assert files_with(world.program.home, "plover6604") == []
    await ask(boss, chat, "/memory", "My boat is called Pelican")


async def test_a_task_from_forbidden_words_and_a_backup_made_meanwhile_go_after_their_end(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    home = world.program.home
    older = await asyncio.to_thread(back_up, home)
    world.script.script("grebe8821", "plan", plan_reply("use grebe8821"))
    done = step_reply("Done with grebe8821.")
    world.script.script("use grebe8821", "step", write_call("grebe8821.txt", "grebe8821"), done)

    await boss.says(chat, "/run Don't remember this: write a note about grebe8821")
    told = await wait_for_message(chat, "The task needs these words while it works")
    await wait_for_message(chat, "Done with grebe8821")
    meanwhile = await asyncio.to_thread(back_up, home)
    kept = await asyncio.to_thread(files_with, home, "grebe8821")
    await ask(boss, chat, "/new", "No conversation yet")
    await wait_until_swept(world)

    assert told is not None
    assert str(meanwhile.relative_to(home)) in kept, "while it goes on, it is there"
    assert await asyncio.to_thread(files_with, home, "grebe8821") == []
    assert older.exists(), "what was made before the words stays"
    assert not meanwhile.exists()
    assert len(list((home / "backups").glob("*.tar.gz"))) == 2, "and another was made in its place"
    assert "grebe8821" not in (await ask(boss, chat, "/list all", "")).text


async def test_with_memory_off_nothing_is_kept_or_used(world: ModelWorld) -> None:
    boss, chat = world.new_owner("zh")
    await ask(boss, chat, "/remember 我的猫叫豆豆", "已记住")
    await ask(boss, chat, "/memory off", "已关闭本会话的记忆")
    world.script.script("我的猫叫什么", "talk", ScriptedReply(text="我不知道呢。"))
    await boss.says(chat, "我的猫叫什么？顺便说，我住在鹭鸶街")
    await wait_for_message(chat, "我不知道呢。")
    await ask(boss, chat, "/memory", "本会话的记忆已关闭")
    await ask(boss, chat, "/reset", "已开始新对话")
    await wait_until_swept(world)

    asked = world.script.requests_for("我的猫叫什么", "talk")[-1]
    assert "豆豆" not in str(asked.body)
    assert files_with(world.program.home, "鹭鸶街") == []
    await ask(boss, chat, "/memory on", "已恢复本会话的记忆")
