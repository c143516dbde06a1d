"""Risky steps ask first: by card, button and word, over deaths, expiry and from group to owner."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.emulators.telegram.chats import TelegramMessage
from tests.journeys.platform_world import (
    ALREADY_PRESSED,
    PlatformWorld,
    ask_on_telegram_as,
    code_in,
    label,
    labels,
    platform_world,
    press_outcome,
    press_outcomes,
    token,
)
from tests.journeys.program import running_program
from tests.journeys.program_store import open_store
from tests.journeys.web_page import (
    WebPageClient,
    button_token,
    open_web_page,
    press_frame,
    send_frames,
)
from tests.thoroughness import thorough_only
from tests.waiting import wait_until

RISKY = '/run write "shipped" to production.txt'


async def test_a_risky_step_asks_and_its_button_works_once_across_a_kill(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        await here.telegram_owner.says(here.telegram_chat, RISKY)
        asks = await _request(here)
        assert "production.txt" in asks.text, "the very words of what will be done"
        await here.ask("/approvals", expects="Waiting for you")
        approve = token(asks, "Approve")
        # What is not noted as sent would be sent again.
        await wait_until(lambda: asyncio.to_thread(_all_is_shown, tmp_path))

        # Dead while it asks: nothing was done, and the old card goes on asking.
        await here.program.kill()
        assert not _shipped(tmp_path)
        presses = [here.telegram_owner.press(asks, "", approve) for _ in range(2)]
        await here.program.start()
        told = await press_outcomes(presses, "✅ Approved", ALREADY_PRESSED)

        assert told.count("✅ Approved") == 1, told
        await here.telegram_chat.wait_for_text("Task finished")
        assert len(_shipped(tmp_path)) == 1
        await here.telegram_chat.wait_until(lambda: not asks.buttons)
        assert "Approved" in asks.text
        assert "Boss" in asks.text, "the card says who"
        # These two words alone tell the outcome of a press for which its button had no time.
        approved = [m.text for m in here.telegram_chat.from_bot if m.text.startswith("✅ Approved")]
        assert len([text for text in approved if text.strip() != "✅ Approved"]) == 1
        late = here.telegram_owner.press(asks, "", approve)
        assert ALREADY_PRESSED in await press_outcome(late, ALREADY_PRESSED)


@thorough_only
async def test_a_rejection_without_reason_blocks_the_task_and_resuming_asks_again(
    tmp_path: Path,
) -> None:
    async with platform_world(tmp_path) as here:
        await here.telegram_owner.says(here.telegram_chat, RISKY)
        first = await _request(here)

        await here.ask("reject not on Friday", expects="Rejected")
        blocked = await here.telegram_chat.wait_for(lambda m: "Boss said no" in m.text)
        assert "not on Friday" in blocked.text
        await here.telegram_chat.wait_until(lambda: "not on Friday" in first.text)
        stuck = await here.telegram_chat.wait_for(lambda m: bool(labels(m, "Resume")))
        await here.telegram_owner.presses(stuck, label(stuck, "Resume"))
        second = await _request(here, not_this=first)
        await here.ask("通过", expects="Approved")
        await here.telegram_chat.wait_for_text("Task finished")

        await here.telegram_chat.wait_until(lambda: not labels(second, "Approve"))
        assert len(_shipped(tmp_path)) == 1


async def test_an_undecided_approval_expires_and_is_requested_again_by_a_button(
    tmp_path: Path,
) -> None:
    async with platform_world(tmp_path, SHIFTBOSS_APPROVAL_HOURS="2") as here:
        await here.telegram_owner.says(here.telegram_chat, RISKY)
        first = await here.telegram_chat.wait_for(lambda m: bool(labels(m, "Approve")))
        old = token(first, "Approve")
        await here.program.stop()
        assert _two_hours_pass(tmp_path) == 2 * 3600 * 1_000_000
        await here.program.start()
        await here.telegram_chat.wait_until(lambda: bool(labels(first, "Retry")))

        assert "Expired" in first.text
        assert not labels(first, "Approve")
        assert "Approved" not in (await here.telegram_owner.presses(first, "", data=old)).text
        await here.telegram_owner.presses(first, label(first, "Retry"))
        second = await here.telegram_chat.wait_for(
            lambda m: m.id != first.id and bool(labels(m, "Approve"))
        )

        assert "production.txt" in second.text
        assert not _shipped(tmp_path)


async def test_an_approval_for_a_group_reaches_the_owners_and_no_member_can_decide_it(
    tmp_path: Path,
) -> None:
    async with platform_world(tmp_path) as here:
        await here.ask("/start")
        await here.ask_on_feishu("/start")
        team = here.telegram.group("Team")
        eve = here.telegram.user(8, "Eve")
        hers = here.telegram.private_chat(eve)
        await here.ask(f"/pair {code_in(await ask_on_telegram_as(eve, hers, 'hello'))}")
        await hers.wait_for_text("You have access")

        await eve.says(team, RISKY, mention=True)
        shown = await team.wait_for(lambda m: bool(labels(m, "Approve")))
        mine = await _request(here)
        chiefs = await here.feishu_chat.wait_for(lambda m: bool(labels(m, "Approve")))

        # The member sees it, and may not decide it: not by button, command or word.
        refused = eve.press(shown, label(shown, "Approve"))
        assert "can't do that" in await press_outcome(refused, "can't do that")
        assert "Approved" not in await ask_on_telegram_as(eve, team, "通过", mention=True)
        assert labels(shown, "Approve"), "it still waits"
        assert not [m for m in hers.from_bot if labels(m, "Approve")]

        # The owner answers by word in private, where the copy is; every copy says who.
        await here.ask("ok", expects="Approved")
        await team.wait_until(lambda: not shown.buttons)
        await here.telegram_chat.wait_until(lambda: not mine.buttons)
        await here.feishu_chat.wait_for(
            lambda m: m.message_id == chiefs.message_id and not m.buttons
        )
        for copy in (shown, mine, chiefs):
            assert "Boss" in copy.text
        await team.wait_for_text("Task finished")
        assert len(_shipped(tmp_path)) == 1


@thorough_only
async def test_in_the_web_chat_an_old_button_works_once_after_a_kill(tmp_path: Path) -> None:
    async with running_program(tmp_path, SHIFTBOSS_LANGUAGE="en") as shiftboss:
        async with open_web_page(shiftboss) as page:
            await page.send_message(RISKY)
            asks = await page.next_frame("", "Approve and continue")
        pressed = button_token(asks["html"], "Approve and continue")
        await shiftboss.kill()
        await shiftboss.start()

        async with open_web_page(shiftboss) as page:
            first = await send_frames(shiftboss, press_frame(pressed, 1))
            approved = await _shown(page, "✅ Approved", "Task finished")
            again = await send_frames(shiftboss, press_frame(pressed, 2))

    assert "Approved" in str(first)
    assert "already pressed this" in str(again), again
    assert "data-token" not in approved, "nothing is left to press"
    assert "Owner" in approved
    assert len(_shipped(tmp_path)) == 1


def _all_is_shown(home: Path) -> bool:
    with open_store(home) as store:
        query = "SELECT count(*) FROM outbox WHERE shown_revision < revision"
        return bool(store.execute(query).fetchone() == (0,))


def _two_hours_pass(home: Path) -> int:
    """For the request that is open; how long it had, in microseconds."""
    with open_store(home) as store:
        ((lifetime,),) = store.execute("SELECT expires_at - created_at FROM approvals")
        store.execute("UPDATE approvals SET expires_at = created_at")
    return int(lifetime)


async def _shown(page: WebPageClient, wanted: str, also: str) -> str:
    """The card with the first text, once the second has been seen too."""
    seen: dict[str, str] = {}
    while len(seen) < len((wanted, also)):
        html = (await page.next_frame("", "")).get("html", "")
        seen |= {part: html for part in (wanted, also) if part in html and part not in seen}
    return seen[wanted]


async def _request(here: PlatformWorld, not_this: TelegramMessage | None = None) -> TelegramMessage:
    known = not_this.id if not_this else None
    return await here.telegram_chat.wait_for(lambda m: m.id != known and bool(labels(m, "Approve")))


def _shipped(home: Path) -> list[Path]:
    """The file that the step makes, in any workspace."""
    return [path for path in (home / "files").rglob("*production.txt") if path.is_file()]
