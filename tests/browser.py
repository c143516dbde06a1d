"""The web chat in a real browser, as whoever uses it has it before them."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

from tests.waiting import WAIT_SECONDS

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Where set, the screenshots are kept there to be looked at.
_SCREENSHOT_FOLDER = os.environ.get("SHIFTBOSS_TEST_SHOTS")

_TIMEOUT_MS = WAIT_SECONDS * 1000
expect.set_options(timeout=_TIMEOUT_MS)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the machine")


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        yield browser
        await browser.close()


class BrowserVisitor:
    """A browser window, and every complaint its console made."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.console_errors: list[str] = []
        page.on("pageerror", lambda problem: self.console_errors.append(str(problem)))
        page.on(
            "console",
            lambda message: (
                self.console_errors.append(message.text)
                if message.type in {"error", "warning"}
                and "WebSocket connection" not in message.text
                else None
            ),
        )

    @property
    def context(self) -> BrowserContext:
        return self.page.context

    @property
    def input_box(self) -> Locator:
        return self.page.locator("#text")

    async def open(self, address: str) -> None:
        await self.page.goto(address)
        await self.wait_until_online()

    async def wait_until_online(self) -> None:
        status = self.page.locator("#status")
        await expect(status).to_have_attribute("data-state", "online")

    async def send_message(self, text: str) -> None:
        """Type and send it; returns once it is known to be stored."""
        await self.input_box.fill(text)
        await self.page.keyboard.press("Enter")
        await expect(self.input_box).to_have_value("")
        await expect(self.page.locator(".unsent")).to_have_count(0)

    def bot_messages(self, text: str) -> Locator:
        """The messages of the program with this text in them."""
        return self.page.locator(".told", has_text=text)

    async def save_screenshot(self, name: str, tmp_path: Path) -> None:
        path = (Path(_SCREENSHOT_FOLDER) if _SCREENSHOT_FOLDER else tmp_path) / f"{name}.png"
        await self.page.screenshot(path=path)
        assert path.stat().st_size > 5_000


async def open_visitor(browser: Browser, **window: Any) -> BrowserVisitor:
    wanted = {"locale": "en-GB", "viewport": {"width": 1000, "height": 760}, **window}
    context = await browser.new_context(**wanted)
    context.set_default_timeout(_TIMEOUT_MS)
    return BrowserVisitor(await context.new_page())
