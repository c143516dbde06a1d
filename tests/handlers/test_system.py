"""Help, status and costs."""

from __future__ import annotations

import pytest

from handlers.command_table import COMMANDS
from storage.records.people import Language
from tests.handlers.router_harness import RouterHarness, text_of


@pytest.mark.parametrize("text", ["/help all", "/帮助 全部", "/HELP All"])
async def test_help_lists_every_command(text: str) -> None:
    desk = RouterHarness()

    shown = text_of(await desk.send_message(text))

    assert [each.name for each in COMMANDS if f"/{each.name}" not in shown] == []


async def test_help_is_grouped_and_names_the_chinese_words() -> None:
    desk = RouterHarness()
    await desk.world.people.set_language(desk.world.ann, Language.CHINESE)

    shown = text_of(await desk.send_message("/help 全部"))

    assert shown.index("任务") < shown.index("会话") < shown.index("系统")
    assert "/新任务" in shown


async def test_help_is_short_and_finds_the_rest_by_group_and_word() -> None:
    desk = RouterHarness()

    shown = text_of(await desk.send_message("/help"))
    assert shown.count("\n") < 30
    assert "/run" in shown
    assert "/remind" not in shown
    assert "/help Steering" in shown

    assert "/replan" in text_of(await desk.send_message("/help steering"))
    assert "/run" not in text_of(await desk.send_message("/help steering"))
    assert "/remind" in text_of(await desk.send_message("/help REMIND"))
    assert "/help all" in text_of(await desk.send_message("/help xyzzy"))


async def test_a_misspelt_command_is_told_and_other_text_is_not() -> None:
    desk = RouterHarness()

    assert "/run" in text_of(await desk.send_message("/rnu write a poem"))
    assert "no command" in text_of(await desk.send_message("/rnu write a poem"))
    assert "no command" not in text_of(await desk.send_message("/srv/www is empty"))


async def test_status_shows_what_is_wrong_and_where_to_fix_it() -> None:
    desk = RouterHarness()

    shown = text_of(await desk.send_message("/status"))

    assert "1/3" in shown
    assert "75 %" in shown
    assert "connect it on the page Setup" in shown
    assert "3 h 00 min" in shown


async def test_cost_shows_the_periods_and_the_models() -> None:
    desk = RouterHarness()

    shown = text_of(await desk.send_message("/费用"))

    assert "$0.0042" in shown
    assert "opus" in shown
    assert "unknown price" in shown


async def test_status_in_a_group_tells_no_titles() -> None:
    desk = RouterHarness()

    in_group = text_of(await desk.send_message("/status", who="x-olga", chat="g1"))
    in_private = text_of(await desk.send_message("/status", who="x-olga", chat="c0"))

    assert "Recent tasks" in in_private
    assert "Recent tasks" not in in_group


async def test_the_process_and_its_memory_are_for_owners_in_private() -> None:
    desk = RouterHarness()

    told = text_of(await desk.send_message("/status", who="x-olga", chat="c0"))
    member = await desk.send_message("/status")
    in_group = await desk.send_message("/status", who="x-olga", chat="g1")

    assert "Process" in told
    assert told.count("Memory") == 2, "that of the process and that of the chat"
    for reply in (member, in_group):
        assert "Process" not in text_of(reply)
        assert text_of(reply).count("Memory") == 1
        assert reply.data is not None
        assert (reply.data["pid"], reply.data["memory_bytes"]) == (0, 0)


async def test_status_says_who_stays_an_owner_without_being_named() -> None:
    desk = RouterHarness()
    desk.world.system.unnamed_owner = "Olga"

    assert "SHIFTBOSS_OWNERS" in text_of(
        await desk.send_message("/status", who="x-olga", chat="c0")
    )
    assert "SHIFTBOSS_OWNERS" not in text_of(await desk.send_message("/status"))
