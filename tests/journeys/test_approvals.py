"""Risky steps ask first: by card, button and word, over deaths, expiry and from group to owner."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.emulators.telegram.chats import Message
from tests.journeys.model_world import Page, web_page
from tests.journeys.program import program
from tests.journeys.town import (
    PATIENCE,
    Town,
    asked,
    code_in,
    label,
    labels,
    over_the_socket,
    token,
    town,
)
from tests.thorough import long

RISKY = '/run write "shipped" to production.txt'


async def test_a_risky_step_asks_and_its_button_works_once_over_a_kill(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await here.boss.says(here.home, RISKY)
        asks = await _request(here)
        assert "production.txt" in asks.text, "the very words of what will be done"
        await here.ask("/approvals", expects="production")
        approve = token(asks, "Approve")

        # Dead while it asks: nothing was done, and the old card goes on asking.
        await here.shiftboss.kill()
        assert not _shipped(tmp_path)
        presses = [here.boss.press(asks, "", approve) for _ in range(2)]
        await here.shiftboss.start()
        told = [(await each.answer(PATIENCE)).text for each in presses]

        assert told.count("✅ Approved") == 1, told
        await here.home.wait_for_text("Task finished", timeout=PATIENCE)
        assert len(_shipped(tmp_path)) == 1
        await here.home.wait_until(lambda: not asks.buttons, timeout=PATIENCE)
        assert "Approved" in asks.text
        assert "Boss" in asks.text, "the card says who"
        assert len([m for m in here.home.from_bot if m.text.startswith("✅ Approved")]) == 1
        late = await here.boss.presses(asks, "", data=approve)
        assert "pressed this before" in late.text


@long
async def test_a_bare_no_blocks_and_going_on_asks_anew(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await here.boss.says(here.home, RISKY)
        first = await _request(here)

        await here.ask("reject not on Friday", expects="Rejected")
        blocked = await here.home.wait_for(lambda m: "Boss said no" in m.text, timeout=PATIENCE)
        assert "not on Friday" in blocked.text
        await here.home.wait_until(lambda: "not on Friday" in first.text, timeout=PATIENCE)
        stuck = await here.home.wait_for(lambda m: bool(labels(m, "Resume")), timeout=PATIENCE)
        await here.boss.presses(stuck, label(stuck, "Resume"))
        second = await _request(here, not_this=first)
        await here.ask("通过", expects="Approved")
        await here.home.wait_for_text("Task finished", timeout=PATIENCE)

        await here.home.wait_until(lambda: not labels(second, "Approve"), timeout=PATIENCE)
        assert len(_shipped(tmp_path)) == 1


async def test_what_nobody_decides_expires_and_asks_again_at_a_press(tmp_path: Path) -> None:
    async with town(tmp_path, SHIFTBOSS_APPROVAL_HOURS="2") as here:
        await here.boss.says(here.home, RISKY)
        first = await here.home.wait_for(lambda m: bool(labels(m, "Approve")), timeout=PATIENCE)
        old = token(first, "Approve")
        await here.shiftboss.stop()
        assert _two_hours_pass(tmp_path) == 2 * 3600 * 1_000_000
        await here.shiftboss.start()
        await here.home.wait_until(lambda: bool(labels(first, "Retry")), timeout=PATIENCE)

        assert "Expired" in first.text
        assert not labels(first, "Approve")
        assert "Approved" not in (await here.boss.presses(first, "", data=old)).text
        await here.boss.presses(first, label(first, "Retry"))
        second = await here.home.wait_for(
            lambda m: m.id != first.id and bool(labels(m, "Approve")), timeout=PATIENCE
        )

        assert "production.txt" in second.text
        assert not _shipped(tmp_path)


async def test_a_groups_request_reaches_the_owners_and_no_member_can_answer_it(
    tmp_path: Path,
) -> None:
    async with town(tmp_path) as here:
        await here.ask("/start")
        await here.ask_chief("/start")
        team = here.telegram.group("Team")
        eve = here.telegram.user(8, "Eve")
        hers = here.telegram.private_chat(eve)
        await here.ask(f"/pair {code_in(await asked(eve, hers, 'hello'))}")
        await hers.wait_for_text("You are in", timeout=PATIENCE)

        await eve.says(team, RISKY, mention=True)
        shown = await team.wait_for(lambda m: bool(labels(m, "Approve")), timeout=PATIENCE)
        mine = await _request(here)
        chiefs = await here.office.wait_for(lambda m: bool(labels(m, "Approve")), timeout=PATIENCE)

        # The member sees it, and may not decide it: not by button, command or word.
        refused = await eve.presses(shown, label(shown, "Approve"))
        assert "may not" in refused.text
        assert "Approved" not in await asked(eve, team, "通过", mention=True)
        assert labels(shown, "Approve"), "it still waits"
        assert not [m for m in hers.from_bot if labels(m, "Approve")]

        # The owner answers by word in private, where the copy is; every copy says who.
        await here.ask("ok", expects="Approved")
        await team.wait_until(lambda: not shown.buttons, timeout=PATIENCE)
        await here.home.wait_until(lambda: not mine.buttons, timeout=PATIENCE)
        await here.office.wait_for(
            lambda m: m.message_id == chiefs.message_id and not m.buttons, timeout=PATIENCE
        )
        for copy in (shown, mine, chiefs):
            assert "Boss" in copy.text
        await team.wait_for_text("Task finished", timeout=PATIENCE)
        assert len(_shipped(tmp_path)) == 1


@long
async def test_in_the_web_chat_an_old_button_works_once_after_a_kill(tmp_path: Path) -> None:
    async with program(tmp_path, SHIFTBOSS_LANGUAGE="en") as shiftboss:
        async with web_page(shiftboss) as page:
            await page.says(RISKY)
            asks = await page.frame("", "Approve and go on")
        pressed = _button(asks["html"], "Approve and go on")
        await shiftboss.kill()
        await shiftboss.start()

        async with web_page(shiftboss) as page:
            first = await over_the_socket(shiftboss, _press(pressed, 1))
            approved = await _shown(page, "✅ Approved", "Task finished")
            again = await over_the_socket(shiftboss, _press(pressed, 2))

    assert "Approved" in str(first)
    assert "pressed this before" in str(again), again
    assert "data-token" not in approved, "nothing is left to press"
    assert "Owner" in approved
    assert len(_shipped(tmp_path)) == 1


def _two_hours_pass(home: Path) -> int:
    """For the request that is open; how long it had, in microseconds."""
    with closing(sqlite3.connect(home / "shiftboss.db")) as store, store:
        ((lifetime,),) = store.execute("SELECT expires_at - created_at FROM approvals")
        store.execute("UPDATE approvals SET expires_at = created_at")
    return int(lifetime)


async def _shown(page: Page, wanted: str, also: str) -> str:
    """The card with the first text, once the second has been seen too."""
    seen: dict[str, str] = {}
    while len(seen) < len((wanted, also)):
        html = (await page.frame("", "")).get("html", "")
        seen |= {part: html for part in (wanted, also) if part in html and part not in seen}
    return seen[wanted]


def _button(html: str, label: str) -> str:
    """The token of the button with that label."""
    found = re.search(rf'data-token="([^"]+)"[^>]*><bdi>[^<]*{label}', html)
    assert found, html
    return found[1]


def _press(token: str, number: int) -> str:
    return json.dumps({"type": "press", "id": f"press-000{number}", "token": token})


async def _request(here: Town, not_this: Message | None = None) -> Message:
    known = not_this.id if not_this else None
    return await here.home.wait_for(
        lambda m: m.id != known and bool(labels(m, "Approve")), timeout=PATIENCE
    )


def _shipped(home: Path) -> list[Path]:
    """What the step makes, in whatever workspace."""
    return [path for path in (home / "files").rglob("*production.txt") if path.is_file()]
