"""Files as they should not be."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.mirror.reconcile import RETRY
from storage.memory.files.folder import MOST_BYTES
from storage.records.memory.entries import GLOBAL, MOST_TEXT, MemoryKind
from tests.bot.engine.memory.mirror.desk import TEAM, Desk

BOMB = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n"


async def looked(desk: Desk) -> None:
    for _ in range(3):
        await desk.mirror.look()
        await desk.wait()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"x" * (10 * MOST_BYTES), "large"),
        (b"\x7fELF\0\0\0", "binary"),
        ("喜欢".encode("gbk"), "binary"),
    ],
)
async def test_rubbish_is_told_of_once_and_let_alone(desk: Desk, data: bytes, kind: str) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    (desk.home / "MEMORY.md").write_bytes(data)

    await looked(desk)
    await desk.hand("has cats")
    await desk.mirror.render([GLOBAL])

    assert desk.told.kinds == [kind]
    assert (desk.home / "MEMORY.md").read_bytes() == data
    assert await desk.texts() == ["has cats", "likes tea"]

    (desk.home / "MEMORY.md").unlink()
    await desk.mirror.look()
    assert desk.shown() == ["likes tea", "has cats"]


@pytest.mark.parametrize("left", [0, 1, 40, -30])
async def test_an_empty_or_half_written_file_forgets_nothing(desk: Desk, left: int) -> None:
    for text in ("likes tea", "has cats"):
        await desk.hand(text)
    await desk.mirror.begin()
    body = desk.read()

    desk.save(body[:left])
    await desk.mirror.look()
    assert desk.read() == body[:left]
    await looked(desk)

    assert {"has cats", "likes tea"} <= set(await desk.texts())
    assert {"has cats", "likes tea"} <= set(desk.shown())
    assert set(desk.told.kinds) <= {"torn"}
    assert len(desk.told.kinds) <= 1


async def test_a_file_that_is_saved_in_two_steps_is_read_when_it_is_whole(desk: Desk) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    body = desk.read().replace("tea", "coffee")

    desk.save("")
    await desk.mirror.look()
    desk.save(body)
    await desk.mirror.look()

    assert await desk.texts() == ["likes coffee"]
    assert desk.told.notices == []


async def test_a_removed_file_is_written_anew(desk: Desk) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()

    (desk.home / "MEMORY.md").unlink()
    await desk.mirror.look()

    assert desk.shown() == ["likes tea"]
    assert desk.told.notices == []


async def test_a_link_out_of_the_home_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("- a secret\n")
    await desk.mirror.begin()
    (desk.home / "MEMORY.md").unlink()
    (desk.home / "MEMORY.md").symlink_to(outside)

    await looked(desk)

    assert desk.told.kinds == ["link"]
    assert outside.read_text() == "- a secret\n"
    assert await desk.texts() == []


async def test_a_folder_of_files_that_is_a_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (desk.home / "memory").symlink_to(outside)

    await desk.mirror.begin()
    await looked(desk)

    assert set(desk.told.kinds) == {"link"}
    assert list(outside.iterdir()) == []
    assert (desk.home / "MEMORY.md").exists()


async def test_a_folder_in_the_way_and_a_pipe_are_told_of(desk: Desk) -> None:
    (desk.home / "MEMORY.md").mkdir()
    os.mkfifo(desk.home / "BOSS.md")

    await desk.mirror.begin()
    await looked(desk)

    assert sorted(desk.told.kinds) == ["folder", "unusable"]


async def test_front_matter_is_carried_along_and_never_looked_into(desk: Desk) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()

    desk.save(f"---\n{BOMB}---\n{desk.read().replace('tea', 'coffee')}")
    await desk.mirror.look()
    await desk.hand("has cats")
    await desk.mirror.render([GLOBAL])

    assert desk.read().startswith(f"---\n{BOMB}---\n# Long-term memory")
    assert desk.shown() == ["likes coffee", "has cats"]


async def test_a_text_that_is_too_long_leaves_the_file_as_it_is(desk: Desk) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    desk.change("<!-- shiftboss: end", f"- {'long ' * MOST_TEXT}\n<!-- shiftboss: end")
    body = desk.read()

    await looked(desk)
    await desk.hand("has cats")
    await desk.mirror.render([GLOBAL])

    assert desk.read() == body
    assert desk.told.kinds == ["too_long"]


async def test_words_that_look_like_marks_change_nothing_but_themselves(desk: Desk) -> None:
    other = await desk.hand("other")
    hostile = f"end <!-- m:{other.id} r1 -->\n<!-- shiftboss: end -->\n# Title\n- item\n```"
    await desk.hand(hostile)
    await desk.mirror.begin()

    desk.change("- other", "- others")
    await looked(desk)

    assert await desk.texts() == sorted([hostile, "others"])
    assert desk.told.notices == []


async def test_a_hand_written_file_from_before_becomes_memory(desk: Desk) -> None:
    (desk.home / "MEMORY.md").write_text("# About me\n\nI like tea.\n\n## Work\n- cats at work\n")

    await desk.mirror.begin()
    await looked(desk)

    assert await desk.texts() == ["I like tea.", "cats at work"]
    assert "## Work" in desk.read()


async def test_rubbish_in_one_file_keeps_no_other_from_being_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.mirror.begin()
    desk.save("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"))
    desk.change("## Notes", "## Notes!", "BOSS.md")

    await looked(desk)

    assert "## Notes" in desk.read("BOSS.md")


async def test_a_file_for_which_there_was_no_room_is_written_when_there_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    before = await desk.bases.latest("MEMORY.md")
    body = desk.read()
    desk.save(body.replace("likes tea", "likes coffee"))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_room)
        for _ in range(80):
            await desk.mirror.look()
            await desk.pause(0.5)
        await desk.hand("has cats")
        await desk.mirror.render([GLOBAL])
    assert await desk.texts() == ["has cats", "likes coffee"]
    assert desk.read() == body.replace("likes tea", "likes coffee")
    assert [each.name for each in desk.home.glob(".*")] == []

    await desk.pause(RETRY.total_seconds())
    await desk.mirror.look()
    latest = await desk.bases.latest("MEMORY.md")
    assert desk.shown() == ["likes coffee", "has cats"]
    assert desk.told.kinds == ["unusable"]
    assert before is not None
    assert latest is not None
    assert latest.number == before.number + 1


def no_room(_handle: int) -> None:
    raise OSError(errno.ENOSPC, "no room")


async def test_a_clock_that_is_put_back_keeps_nothing_waiting(desk: Desk) -> None:
    await desk.hand("likes tea")
    await desk.add("met Bo", TEAM, MemoryKind.FACT)
    await desk.mirror.begin()
    desk.change(f"{desk.line('likes tea')}\n", "")
    await desk.mirror.look()

    desk.at -= timedelta(hours=1)
    await desk.mirror.look()
    await desk.add("met Cy", TEAM, MemoryKind.FACT)
    await desk.mirror.render([TEAM])
    await desk.wait()

    assert await desk.texts() == []
    assert [each.name for each in desk.home.glob(".*")] == []
    assert desk.shown("memory/chats/the-team/2026-11-23.md") == ["met Bo", "met Cy"]


async def test_an_older_version_that_is_put_in_its_place_takes_nothing_back(desk: Desk) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    before = desk.read()
    desk.change("likes tea", "likes coffee")
    await desk.mirror.look()
    desk.change("<!-- shiftboss: end", "- has cats\n<!-- shiftboss: end")
    await looked(desk)

    desk.save(before)
    await looked(desk)

    assert await desk.texts() == ["has cats", "likes coffee"]
    assert desk.shown() == ["likes coffee", "has cats"]
    assert desk.told.notices == []
