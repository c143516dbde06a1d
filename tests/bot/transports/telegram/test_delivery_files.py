"""Pictures and files on their way out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.transports.telegram.transport import TelegramTransport
from cards.model import FileBlock, ImageBlock, TextBlock
from tests.bot.transports.telegram.builders import deliver_whole, later, letter
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import PIXEL

LONG = "\n".join(f"line {i} {'x' * 60}" for i in range(130))


async def test_a_picture_and_a_file_are_sent_after_the_text(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.png").write_bytes(PIXEL)
    (tmp_path / "out" / "haiku.md").write_text("old pond")

    await deliver_whole(
        sender,
        letter(
            chat,
            ImageBlock(path="out/a.png", alt="a pixel"),
            FileBlock(path="out/haiku.md", name="俳句.md", size=8),
            TextBlock(markdown="done"),
        ),
    )

    text, photo, document = chat.from_bot
    assert text.text == "done"
    assert (photo.text, photo.media["photo"][0]["file_size"]) == ("a pixel", len(PIXEL))
    assert document.upload
    assert (document.upload.name, document.upload.content) == ("俳句.md", b"old pond")


async def test_files_shown_already_stay_and_others_come_and_go(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    files = {name: FileBlock(path=name, name=name, size=1) for name in ("a", "b", "c")}
    first = letter(chat, TextBlock(markdown="t"), files["a"], files["b"])
    placed = (await deliver_whole(sender, first)).placed

    await deliver_whole(
        sender, later(first, placed, TextBlock(markdown="t"), files["b"], files["c"])
    )

    names = [m.upload.name for m in chat.from_bot if m.upload]
    assert names == ["b", "c"]


async def test_several_pictures_are_one_album(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(PIXEL)

    delivery = await deliver_whole(
        sender, letter(chat, *(ImageBlock(path=f"{i}.png", alt="") for i in range(3)))
    )

    assert len({m.album for m in chat.from_bot}) == 1
    assert len(delivery.placed.message_ids) == 3


async def test_a_broken_picture_is_sent_as_a_file_and_spoils_no_album(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    (tmp_path / "good.png").write_bytes(PIXEL)
    (tmp_path / "bad.png").write_bytes(b"no picture")

    delivery = await deliver_whole(
        sender,
        letter(chat, ImageBlock(path="good.png", alt=""), ImageBlock(path="bad.png", alt="broken")),
    )

    good, bad = chat.from_bot
    assert "photo" in good.media
    assert "document" in bad.media
    assert bad.text == "broken"
    assert "image: not a picture Telegram knows, sent as a file" in delivery.degraded


async def test_a_picture_beyond_the_photo_limit_is_a_file(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    (tmp_path / "big.png").write_bytes(PIXEL + bytes(10 * 1024 * 1024))

    await deliver_whole(sender, letter(chat, ImageBlock(path="big.png", alt="")))

    assert "document" in chat.last.media


@pytest.mark.parametrize("path", ["gone.txt", "../secret.txt", "/etc/hostname", ".", "empty"])
async def test_a_file_that_is_not_there_or_not_ours_is_only_named(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path, path: str
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path.parent / "secret.txt").write_text("secret")

    await deliver_whole(
        sender, letter(chat, TextBlock(markdown="see"), FileBlock(path=path, name="x", size=1))
    )

    assert [m.text for m in chat.from_bot] == ["see", "📎 x: this file is no longer available."]
    assert all(m.upload is None for m in chat.from_bot)


async def test_a_file_too_large_for_telegram_is_named_in_the_chats_language(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)

    await deliver_whole(
        sender, letter(chat, FileBlock(path="huge.bin", name="huge.bin", size=1), language="zh")
    )

    assert chat.last.text == "📎 huge.bin 超过 50 MB，Telegram 不收这么大的文件。它在 huge.bin。"


async def test_files_wait_for_turns_of_their_own_and_are_one_album(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    blocks = []
    for i in range(12):
        (tmp_path / f"{i}.md").write_text(f"file {i}")
        blocks.append(FileBlock(path=f"{i}.md", name=f"{i}.md", size=6))
    whole = letter(chat, TextBlock(markdown="done"), *blocks)

    card = await sender.deliver(whole)
    after_card = len(chat.from_bot)
    files = replace(whole, placed=card.placed, files_only=True)
    first = await sender.deliver(files)
    after_first = len(chat.from_bot)
    second = await sender.deliver(replace(files, placed=first.placed))

    assert (card.files_left, first.files_left, second.files_left) == (10, 2, 0)
    assert (after_card, after_first, len(chat.from_bot)) == (1, 11, 13)
    uploads = [m.upload for m in chat.from_bot[1:]]
    assert [upload.name for upload in uploads if upload] == [f"{i}.md" for i in range(12)]
    assert len({m.album for m in chat.from_bot[1:]}) == 2


async def test_an_album_of_files_that_may_have_arrived_is_marked_when_it_is_repeated(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(name)
    blocks = [FileBlock(path=name, name=name, size=4) for name in ("a.md", "b.md")]
    whole = letter(chat, TextBlock(markdown="done"), *blocks)
    card = await sender.deliver(whole)

    await sender.deliver(replace(whole, placed=card.placed, files_only=True, repeat=True))

    text, first, second = chat.from_bot
    assert text.text == "done"
    assert first.text.startswith("♻️")
    assert second.text == ""


async def test_pictures_and_files_are_never_in_one_album(
    sender: TelegramTransport, chat: TelegramChat, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(PIXEL)
    (tmp_path / "b.md").write_text("b")

    await deliver_whole(
        sender,
        letter(chat, ImageBlock(path="a.png", alt=""), FileBlock(path="b.md", name="b", size=1)),
    )

    assert [m.album for m in chat.from_bot] == [None, None]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_name_in_a_caption_calls_nobody_in_a_group(
    tg: TelegramEmulator, sender: TelegramTransport, tmp_path: Path, count: int
) -> None:
    group = tg.group("Team")
    pictures = [ImageBlock(path=f"{i}.png", alt="by @ada_l") for i in range(count)]
    for picture in pictures:
        (tmp_path / picture.path).write_bytes(PIXEL)

    await deliver_whole(sender, letter(group, *pictures))

    assert [each.text for each in group.from_bot][-1] == "by ＠ada_l"
    assert not any(each.called for each in group.from_bot)
