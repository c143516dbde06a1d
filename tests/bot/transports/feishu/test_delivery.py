"""Letters are shown, changed in place, with their pictures and files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.transports.ports import ContentRefused, FileTooLarge
from cards.model import Card, FileBlock, ImageBlock
from storage.records.messages import AttachmentKind, MessagePlacement, RemoteFile
from tests.bot.transports.feishu.builders import FeishuHarness, next_revision, plain, task
from tests.emulators.feishu.tenant import FeishuChat

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
SEND = "/im/v1/messages$"


@pytest.fixture
def chat(idle: FeishuHarness) -> FeishuChat:
    return idle.fs.private_chat(idle.fs.user("Anna"))


# --- showing --------------------------------------------------------------------------------


async def test_a_plain_answer_costs_one_call(idle: FeishuHarness, chat: FeishuChat) -> None:
    _, delivery = await idle.post(chat, plain("**Hello**"))

    (message,) = chat.from_bot
    assert message.card["body"]["elements"][0]["content"] == "**Hello**"
    assert delivery.placed.message_ids == (message.message_id,)
    assert len(idle.calls) == 1


async def test_a_task_card_is_an_entity_and_changes_in_place(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, task(10))

    for percent in (50, 100):
        letter = next_revision(letter, task(percent), delivery.placed)
        delivery = await idle.show(letter)

    (message,) = chat.from_bot
    assert message.entity is not None
    assert "100%" in message.text
    assert message.summary == "Haiku 100%"
    assert [len(message.history), len(message.entity.history)] == [0, 2]


async def test_a_restarted_process_takes_the_same_card_up_again(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, task(10))
    entity = chat.from_bot[0].entity
    assert entity is not None
    entity.sequence = 300  # a stream that was never written down
    idle.transport._cardkit._entities.clear()
    idle.transport._placements.clear()

    await idle.show(next_revision(letter, task(100), delivery.placed))

    assert "100%" in chat.from_bot[0].text
    assert len(chat.from_bot) == 1


async def test_a_lost_sequence_is_climbed_over(idle: FeishuHarness, chat: FeishuChat) -> None:
    letter, delivery = await idle.post(chat, task(10))
    entity = chat.from_bot[0].entity
    assert entity is not None
    entity.sequence = 1200

    await idle.show(next_revision(letter, task(20), delivery.placed))

    assert "20%" in chat.from_bot[0].text


async def test_a_plain_card_is_patched(idle: FeishuHarness, chat: FeishuChat) -> None:
    letter, delivery = await idle.post(chat, plain("one"))

    await idle.show(next_revision(letter, plain("two"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["two"]
    assert len(idle.fs.calls("PATCH", delivery.placed.message_ids[0])) == 1


async def test_a_long_answer_grows_and_shrinks_in_parts(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    long = "\n".join(f"line {number} " + "字" * 60 for number in range(300))
    letter, delivery = await idle.post(chat, plain(long))
    assert len(chat.from_bot) > 1
    idle.fs.advance(2)

    letter = next_revision(letter, plain("short"), delivery.placed)
    delivery = await idle.show(letter)
    assert [message.text for message in chat.from_bot] == ["short"]

    idle.fs.advance(2)
    await idle.show(next_revision(letter, plain(long), delivery.placed))
    assert "line 299 " in chat.from_bot[-1].text


async def test_answers_quote_what_they_answer(idle: FeishuHarness) -> None:
    anna = idle.fs.user("Anna")
    chat = idle.fs.group("topics", topics=True)
    asked = await anna.says(chat, "go")

    await idle.post(chat, plain("done"), thread=asked.message_id, reply_to=asked.message_id)
    await idle.post(chat, plain("and more"), thread=asked.message_id)

    assert [message.parent_id for message in chat.from_bot] == [asked.message_id] * 2
    assert {message.thread_id for message in chat.from_bot} == {asked.thread_id}


async def test_a_recalled_question_is_answered_all_the_same(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    anna = idle.fs.user("Anna")
    asked = await anna.says(chat, "go")
    await anna.recalls(asked)

    await idle.post(chat, plain("done"), reply_to=asked.message_id)

    assert [(m.text, m.parent_id) for m in chat.from_bot] == [("done", None)]


async def test_a_group_that_lost_its_topics_gets_a_plain_reply(idle: FeishuHarness) -> None:
    chat = idle.fs.group("plain")
    asked = await idle.fs.user("Anna").says(chat, "go")

    await idle.post(chat, plain("done"), thread=asked.message_id)

    assert chat.from_bot[0].parent_id == asked.message_id


async def test_a_message_that_is_gone_is_sent_anew(idle: FeishuHarness, chat: FeishuChat) -> None:
    for card in (plain("one"), task(1)):
        letter, delivery = await idle.post(chat, card)
        chat.messages[-1].recalled = True
        idle.fs.world.entities.clear()

        delivery = await idle.show(next_revision(letter, card, delivery.placed))

        assert delivery.placed.message_ids == (chat.from_bot[-1].message_id,)
    assert len(chat.from_bot) == 2


async def test_a_placement_of_unknown_shape_is_still_a_card(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, plain("one"))
    idle.transport._placements.clear()
    odd = MessagePlacement(
        message_ids=delivery.placed.message_ids, state={"parts": [7, {"k": "x"}]}
    )

    await idle.show(next_revision(letter, plain("two"), odd))

    assert [message.text for message in chat.from_bot] == ["two"]


# --- pictures and files ---------------------------------------------------------------------


async def test_pictures_stand_in_the_card_and_files_behind_it(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    (idle.home / "a.png").write_bytes(PNG)
    (idle.home / "haiku.md").write_text("queues")
    blocks = (
        ImageBlock(path="a.png", alt="A figure"),
        FileBlock(path="haiku.md", name="haiku.md", size=6),
        FileBlock(path="../etc", name="no", size=1),
        ImageBlock(path="gone.png", alt="lost"),
    )
    card = Card(title="Result", blocks=blocks)

    letter, delivery = await idle.post(chat, card)
    again = await idle.show(next_revision(letter, card, delivery.placed))

    shown, file = chat.from_bot
    key = shown.card["body"]["elements"][0]["img_key"]
    assert idle.fs.world.images[key].data == PNG
    assert file.msg_type == "file"
    assert [blob.data for blob in idle.fs.world.files.values()] == [b"queues"]
    assert "image: cannot be read" in delivery.degraded
    assert "file: outside the data directory" in delivery.degraded
    assert again.placed.message_ids == delivery.placed.message_ids
    assert len(idle.fs.calls("POST", "/images")) == 1


async def test_what_is_too_large_to_fetch_is_said_so(
    idle: FeishuHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.transports.files.MAX_DOWNLOAD_BYTES", 10)
    anna = idle.fs.user("Anna")
    sent = await anna.sends_file(idle.fs.private_chat(anna), "big.bin", b"x" * 11)
    reference = {
        "message_id": sent.message_id,
        "key": sent.content.split('"')[3],
        "type": "file",
    }
    file = RemoteFile(kind=AttachmentKind.FILE, reference=reference, name="big.bin")

    with pytest.raises(FileTooLarge):
        await idle.transport.fetch(file, idle.home)
    wrong = replace(file, reference={**reference, "key": "file_v3_other"})
    with pytest.raises(ContentRefused):
        await idle.transport.fetch(wrong, idle.home)
    assert list(idle.home.iterdir()) == []
