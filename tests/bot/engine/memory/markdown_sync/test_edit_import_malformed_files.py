"""Files as they should not be."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.markdown_sync.reconciler import WRITE_RETRY_AFTER
from storage.memory.markdown.folder import MAX_FILE_BYTES
from storage.records.memory import GLOBAL_SCOPE, MAX_ENTRY_TEXT, MemoryKind
from tests.bot.engine.memory.markdown_sync.sync_builders import TEAM, SyncSetup

BOMB = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n"


async def looked(desk: SyncSetup) -> None:
    for _ in range(3):
        await desk.sync_service.read_back()
        await desk.wait()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"x" * (10 * MAX_FILE_BYTES), "large"),
        (b"\x7fELF\0\0\0", "binary"),
        ("喜欢".encode("gbk"), "binary"),
    ],
)
async def test_rubbish_is_told_of_once_and_let_alone(
    desk: SyncSetup, data: bytes, kind: str
) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    (desk.home / "MEMORY.md").write_bytes(data)

    await looked(desk)
    await desk.add_manual("has cats")
    await desk.sync_service.write_changed([GLOBAL_SCOPE])

    assert desk.notifier.kinds == [kind]
    assert (desk.home / "MEMORY.md").read_bytes() == data
    assert await desk.texts() == ["has cats", "likes tea"]

    (desk.home / "MEMORY.md").unlink()
    await desk.sync_service.read_back()
    assert desk.shown() == ["likes tea", "has cats"]


@pytest.mark.parametrize("left", [0, 1, 40, -30])
async def test_an_empty_or_half_written_file_forgets_nothing(desk: SyncSetup, left: int) -> None:
    for text in ("likes tea", "has cats"):
        await desk.add_manual(text)
    await desk.sync_service.sync_all()
    body = desk.read()

    desk.save(body[:left])
    await desk.sync_service.read_back()
    assert desk.read() == body[:left]
    await looked(desk)

    assert {"has cats", "likes tea"} <= set(await desk.texts())
    assert {"has cats", "likes tea"} <= set(desk.shown())
    assert set(desk.notifier.kinds) <= {"torn"}
    assert len(desk.notifier.kinds) <= 1


async def test_a_file_that_is_saved_in_two_steps_is_read_when_it_is_whole(desk: SyncSetup) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    body = desk.read().replace("tea", "coffee")

    desk.save("")
    await desk.sync_service.read_back()
    desk.save(body)
    await desk.sync_service.read_back()

    assert await desk.texts() == ["likes coffee"]
    assert desk.notifier.notices == []


async def test_a_removed_file_is_written_anew(desk: SyncSetup) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()

    (desk.home / "MEMORY.md").unlink()
    await desk.sync_service.read_back()

    assert desk.shown() == ["likes tea"]
    assert desk.notifier.notices == []


async def test_a_link_out_of_the_home_is_not_followed(desk: SyncSetup, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("- a secret\n")
    await desk.sync_service.sync_all()
    (desk.home / "MEMORY.md").unlink()
    (desk.home / "MEMORY.md").symlink_to(outside)

    await looked(desk)

    assert desk.notifier.kinds == ["link"]
    assert outside.read_text() == "- a secret\n"
    assert await desk.texts() == []


async def test_a_folder_of_files_that_is_a_link_is_not_followed(
    desk: SyncSetup, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (desk.home / "memory").symlink_to(outside)

    await desk.sync_service.sync_all()
    await looked(desk)

    assert set(desk.notifier.kinds) == {"link"}
    assert list(outside.iterdir()) == []
    assert (desk.home / "MEMORY.md").exists()


async def test_a_folder_in_the_way_and_a_pipe_are_told_of(desk: SyncSetup) -> None:
    (desk.home / "MEMORY.md").mkdir()
    os.mkfifo(desk.home / "BOSS.md")

    await desk.sync_service.sync_all()
    await looked(desk)

    assert sorted(desk.notifier.kinds) == ["folder", "unusable"]


async def test_front_matter_is_carried_along_and_never_looked_into(desk: SyncSetup) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()

    desk.save(f"---\n{BOMB}---\n{desk.read().replace('tea', 'coffee')}")
    await desk.sync_service.read_back()
    await desk.add_manual("has cats")
    await desk.sync_service.write_changed([GLOBAL_SCOPE])

    assert desk.read().startswith(f"---\n{BOMB}---\n# Long-term memory")
    assert desk.shown() == ["likes coffee", "has cats"]


async def test_a_text_that_is_too_long_leaves_the_file_as_it_is(desk: SyncSetup) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    desk.change("<!-- shiftboss: end", f"- {'long ' * MAX_ENTRY_TEXT}\n<!-- shiftboss: end")
    body = desk.read()

    await looked(desk)
    await desk.add_manual("has cats")
    await desk.sync_service.write_changed([GLOBAL_SCOPE])

    assert desk.read() == body
    assert desk.notifier.kinds == ["too_long"]


async def test_words_that_look_like_marks_change_nothing_but_themselves(desk: SyncSetup) -> None:
    other = await desk.add_manual("other")
    hostile = f"end <!-- m:{other.id} r1 -->\n<!-- shiftboss: end -->\n# Title\n- item\n```"
    await desk.add_manual(hostile)
    await desk.sync_service.sync_all()

    desk.change("- other", "- others")
    await looked(desk)

    assert await desk.texts() == sorted([hostile, "others"])
    assert desk.notifier.notices == []


async def test_a_hand_written_file_from_before_becomes_memory(desk: SyncSetup) -> None:
    (desk.home / "MEMORY.md").write_text("# About me\n\nI like tea.\n\n## Work\n- cats at work\n")

    await desk.sync_service.sync_all()
    await looked(desk)

    assert await desk.texts() == ["I like tea.", "cats at work"]
    assert "## Work" in desk.read()


async def test_rubbish_in_one_file_keeps_no_other_from_being_written(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.sync_service.sync_all()
    desk.save("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"))
    desk.change("## Notes", "## Notes!", "BOSS.md")

    await looked(desk)

    assert "## Notes" in desk.read("BOSS.md")


async def test_a_file_for_which_there_was_no_room_is_written_when_there_is(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    before = await desk.bases.find_latest("MEMORY.md")
    body = desk.read()
    desk.save(body.replace("likes tea", "likes coffee"))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_room)
        for _ in range(80):
            await desk.sync_service.read_back()
            await desk.pause(0.5)
        await desk.add_manual("has cats")
        await desk.sync_service.write_changed([GLOBAL_SCOPE])
    assert await desk.texts() == ["has cats", "likes coffee"]
    assert desk.read() == body.replace("likes tea", "likes coffee")
    assert [each.name for each in desk.home.glob(".*")] == []

    await desk.pause(WRITE_RETRY_AFTER.total_seconds())
    await desk.sync_service.read_back()
    latest = await desk.bases.find_latest("MEMORY.md")
    assert desk.shown() == ["likes coffee", "has cats"]
    assert desk.notifier.kinds == ["unusable"]
    assert before is not None
    assert latest is not None
    assert latest.number == before.number + 1


def no_room(_handle: int) -> None:
    raise OSError(errno.ENOSPC, "no room")


async def test_a_clock_that_is_put_back_keeps_nothing_waiting(desk: SyncSetup) -> None:
    await desk.add_manual("likes tea")
    await desk.add("met Bo", TEAM, MemoryKind.FACT)
    await desk.sync_service.sync_all()
    desk.change(f"{desk.line('likes tea')}\n", "")
    await desk.sync_service.read_back()

    desk.clock -= timedelta(hours=1)
    await desk.sync_service.read_back()
    await desk.add("met Cy", TEAM, MemoryKind.FACT)
    await desk.sync_service.write_changed([TEAM])
    await desk.wait()

    assert await desk.texts() == []
    assert [each.name for each in desk.home.glob(".*")] == []
    assert desk.shown("memory/chats/the-team/2026-11-23.md") == ["met Bo", "met Cy"]


async def test_an_older_version_that_is_put_in_its_place_takes_nothing_back(
    desk: SyncSetup,
) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    before = desk.read()
    desk.change("likes tea", "likes coffee")
    await desk.sync_service.read_back()
    desk.change("<!-- shiftboss: end", "- has cats\n<!-- shiftboss: end")
    await looked(desk)

    desk.save(before)
    await looked(desk)

    assert await desk.texts() == ["has cats", "likes coffee"]
    assert desk.shown() == ["likes coffee", "has cats"]
    assert desk.notifier.notices == []
