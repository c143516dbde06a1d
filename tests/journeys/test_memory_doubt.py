"""The question whether a message may be remembered, with its buttons, on each channel."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.model_world import wait_for_message
from tests.journeys.platform_world import feishu_press_outcome, label, platform_world
from tests.journeys.web_page import open_web_page

ASKED = "May I remember this message?"
KEPT, NOT_KEPT = "Kept.", "I won't remember this message"


def said(place: str, secret: str) -> str:
    return f"kindly leave that unrecorded: the boat at {place} is called {secret}"


async def test_a_message_in_doubt_is_kept_only_by_the_button_on_each_channel(
    tmp_path: Path,
) -> None:
    async with platform_world(tmp_path / "home") as here:
        chat = here.telegram_chat
        for secret, button, outcome in (
            ("gannet61", "Keep", KEPT),
            ("gannet62", "Don't keep", NOT_KEPT),
        ):
            await here.ask(said("Hull", secret), expects=ASKED)
            unanswered = await here.ask("/memory search boat at Hull", expects="memor")
            asked = await chat.wait_for(lambda m: ASKED in m.text and bool(m.buttons))
            await here.telegram_owner.presses(asked, label(asked, button))
            await wait_for_message(chat, outcome)
            assert secret not in unanswered
        on_telegram = await here.ask("/memory search boat at Hull", expects="gannet")

        await here.ask_on_feishu(said("Cork", "fulmar63"), expects=ASKED)
        card = await here.feishu_chat.wait_for(lambda m: ASKED in m.text and bool(m.buttons))
        press = here.feishu_owner.presses(card, label(card, "Keep"))
        await feishu_press_outcome(card, press, KEPT)
        on_feishu = await here.ask_on_feishu("/memory search boat at Cork", expects="fulmar63")

        async with open_web_page(here.program) as page:
            await page.send_message(said("Bonn", "petrel64"))
            shown = await page.next_frame("", ASKED)
            await page.press(shown["html"], "✅ Keep")
            await page.next_frame("", KEPT)
            await page.send_message("/memory search boat at Bonn")
            found = await page.next_frame("", "memor")

    assert "gannet61" in on_telegram
    assert "gannet62" not in on_telegram
    assert "fulmar63" in on_feishu
    assert "petrel64" in found["html"]
