"""Tests concurrent changes by a person and the program."""

from __future__ import annotations

from datetime import timedelta

from bot.engine.memory.access import LOCAL_EDITOR
from bot.engine.memory.markdown_sync.edit_import import CONFIRM_WITHIN
from storage.records.memory import GLOBAL_SCOPE, MemoryKind
from tests.bot.engine.memory.markdown_sync.sync_builders import TEAM, SyncSetup


async def test_what_both_have_changed_is_kept_twice_and_shown_together(desk: SyncSetup) -> None:
    made = await desk.add_manual("likes tea")
    await desk.add_manual("has cats")
    await desk.sync_service.sync_all()
    desk.change("likes tea", "likes coffee")
    await desk.writer.edit(made, "likes milk", LOCAL_EDITOR)

    await desk.sync_service.write_changed([GLOBAL_SCOPE])

    assert await desk.texts() == ["has cats", "likes coffee", "likes milk"]
    assert desk.shown() == ["likes milk", "likes coffee", "has cats"]
    assert "> ⚠️" in desk.read()
    assert desk.notifier.kinds == ["clash"]

    await desk.sync_service.write_changed([GLOBAL_SCOPE])
    await desk.sync_service.read_back()
    assert desk.notifier.kinds == ["clash"]


async def test_a_conflict_ends_when_one_of_the_two_lines_is_removed(desk: SyncSetup) -> None:
    made = await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    desk.change("likes tea", "likes coffee")
    await desk.writer.edit(made, "likes milk", LOCAL_EDITOR)
    await desk.sync_service.read_back()

    desk.change(f"{desk.line('likes milk')}\n", "")
    await desk.wait()

    assert await desk.texts() == ["likes coffee"]
    assert "⚠️" not in desk.read()


async def test_an_editor_that_was_opened_before_the_bot_wrote_forgets_nothing(
    desk: SyncSetup,
) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    buffer = desk.read()
    for number in range(3):
        await desk.add_manual(f"later {number}")
        await desk.sync_service.write_changed([GLOBAL_SCOPE])

    desk.save(buffer.replace("likes tea", "likes coffee"))
    await desk.sync_service.read_back()

    assert await desk.texts() == ["later 0", "later 1", "later 2", "likes coffee"]
    assert desk.shown() == ["likes coffee", "later 0", "later 1", "later 2"]
    assert desk.notifier.notices == []


async def test_two_editors_at_once_lose_neither_ones_lines(desk: SyncSetup) -> None:
    for text in ("one", "two", "three"):
        await desk.add_manual(text)
    await desk.sync_service.sync_all()
    first = second = desk.read()

    desk.save(
        first.replace("- one", "- ONE!").replace(
            "<!-- shiftboss: end", "- by the first\n<!-- shiftboss: end"
        )
    )
    await desk.sync_service.read_back()
    desk.save(
        second.replace("- two", "- TWO!").replace(
            "<!-- shiftboss: end", "- by the second\n<!-- shiftboss: end"
        )
    )
    await desk.sync_service.read_back()

    assert await desk.texts() == ["ONE!", "TWO!", "by the first", "by the second", "three"]


async def test_two_editors_that_change_the_same_line_are_both_kept(desk: SyncSetup) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    first = second = desk.read()

    desk.save(first.replace("tea", "coffee"))
    await desk.sync_service.read_back()
    desk.save(second.replace("tea", "milk"))
    await desk.sync_service.read_back()

    assert await desk.texts() == ["likes coffee", "likes milk"]
    assert desk.notifier.kinds == ["clash"]


async def test_what_was_forgotten_does_not_come_back_out_of_an_open_editor(desk: SyncSetup) -> None:
    made = await desk.add_manual("my pin is 1234")
    await desk.add_manual("has cats")
    await desk.sync_service.sync_all()
    buffer = desk.read()
    await desk.writer.forget(made, LOCAL_EDITOR)
    await desk.sync_service.write_changed([GLOBAL_SCOPE])

    desk.save(buffer.replace("cats", "dogs"))
    await desk.sync_service.read_back()

    assert await desk.texts() == ["has dogs"]
    assert "1234" not in desk.read()


async def test_no_word_of_what_was_forgotten_stays_beside_the_files(desk: SyncSetup) -> None:
    made = await desk.add_manual("my pin is 1234")
    await desk.sync_service.sync_all()
    await desk.writer.forget(made, LOCAL_EDITOR)
    await desk.sync_service.write_changed([GLOBAL_SCOPE])
    await desk.wait()

    latest = await desk.bases.find_latest("MEMORY.md")
    assert latest is not None
    assert "1234" not in latest.page_digest.to_json()
    files = [each for each in desk.home.rglob("*") if each.is_file()]
    assert files
    assert not any(b"1234" in each.read_bytes() for each in files)


async def test_a_step_back_in_the_editor_brings_a_removed_line_back(desk: SyncSetup) -> None:
    await desk.add_manual("likes tea")
    await desk.add_manual("has cats")
    await desk.sync_service.sync_all()
    buffer = desk.read()
    desk.change(f"{desk.line('likes tea')}\n", "")
    await desk.wait()
    assert await desk.texts() == ["has cats"]

    desk.save(buffer)
    await desk.sync_service.read_back()

    assert await desk.texts() == ["has cats", "likes tea"]


async def test_removing_most_lines_has_to_be_done_twice(desk: SyncSetup) -> None:
    for number in range(12):
        await desk.add_manual(f"fact {number}")
    await desk.sync_service.sync_all()

    def gutted() -> str:
        return "\n".join(x for x in desk.read().split("\n") if "fact" not in x or "fact 11" in x)

    desk.save(gutted())
    await desk.wait()
    assert len(await desk.texts()) == 12
    assert desk.notifier.kinds == ["held"]
    assert len(desk.shown()) == 12

    desk.save(gutted())
    await desk.sync_service.read_back()
    assert len(await desk.texts()) == 12, "they may be moved"
    await desk.wait()
    assert await desk.texts() == ["fact 11"]


async def test_much_later_it_is_asked_again(desk: SyncSetup) -> None:
    for number in range(12):
        await desk.add_manual(f"fact {number}")
    await desk.sync_service.sync_all()

    for _ in range(2):
        desk.save("\n".join(x for x in desk.read().split("\n") if "fact" not in x))
        await desk.wait()
        desk.clock += CONFIRM_WITHIN + timedelta(minutes=1)

    assert len(await desk.texts()) == 12
    assert desk.notifier.kinds == ["held", "held"]


async def test_a_change_of_the_store_alone_is_no_change_of_the_person(desk: SyncSetup) -> None:
    made = await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    await desk.writer.edit(made, "likes milk", LOCAL_EDITOR)
    desk.change("# Long-term memory", "# Long-term memory \n\n\n")

    await desk.sync_service.read_back()

    assert await desk.texts() == ["likes milk"]
    assert desk.shown() == ["likes milk"]


async def test_a_secret_that_is_written_into_a_file_does_not_stay_there(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()

    desk.change("<!-- shiftboss: end", "- the password is hunter2\n<!-- shiftboss: end")
    await desk.sync_service.read_back()

    assert desk.shown() == ["the password is ***"]


async def test_what_only_the_program_touched_does_not_make_it_a_persons(desk: SyncSetup) -> None:
    made = await desk.add("a fact", TEAM, MemoryKind.FACT)
    await desk.sync_service.sync_all()
    await desk.sync_service.read_back()

    assert await desk.entries.get(made.id, [TEAM]) == made


async def test_an_editor_that_saves_while_one_types_leaves_no_pieces(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()
    buffer = desk.read()

    for typed in ("I ", "I like", "I like te", "I like tea", "I like green tea", "I like tea"):
        desk.save(buffer.replace("<!-- shiftboss: end", f"- {typed}\n<!-- shiftboss: end"))
        await desk.sync_service.read_back()

    assert await desk.texts() == ["I like tea"]


async def test_an_editor_that_goes_on_with_a_line_is_no_conflict_with_itself(
    desk: SyncSetup,
) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    buffer = desk.read()

    for typed in ("likes", "likes cof", "likes coffee", "likes black coffee"):
        desk.save(buffer.replace("likes tea", typed))
        await desk.sync_service.read_back()

    assert await desk.texts() == ["likes black coffee"]
    assert desk.notifier.notices == []


async def test_lines_that_begin_alike_are_still_lines_of_their_own(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()
    buffer = desk.read()

    for typed in ("- fact 1", "- fact 1\n- fact 10", "- fact 1\n- fact 10\n- fact 100"):
        desk.save(buffer.replace("<!-- shiftboss: end", f"{typed}\n<!-- shiftboss: end"))
        await desk.sync_service.read_back()

    assert await desk.texts() == ["fact 1", "fact 10", "fact 100"]
