"""Opt-in: a real small model plans a task, does it, and reports. See docs/agents.md."""

from __future__ import annotations

import asyncio
import html
import re
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.journeys.program import ShiftbossProcess, running_program
from tests.journeys.web_page import WebPageClient, open_web_page
from tests.real_model.model_server import MODEL_FILE, serve_model

pytestmark = pytest.mark.skipif(not MODEL_FILE, reason="SHIFTBOSS_REAL_MODEL names no GGUF file")

PATIENCE = 1800.0
# In the place of the usual one, which would be told of a dozen tools: 1,300 tokens more.
_PERSONA = """\
---
tools: write
---
A step that is to leave a file is done only once you have called `write`. Report after that.
"""
_TAG = re.compile(r"<[^>]*>")
_ENDS = ("Task finished", "Task failed", "Task blocked")


@pytest.fixture
async def shiftboss(tmp_path: Path) -> AsyncGenerator[ShiftbossProcess, None]:
    home = tmp_path / "home"
    (home / "personas").mkdir(parents=True)
    (home / "personas" / "pragmatist.md").write_text(_PERSONA)
    async with (
        serve_model(tmp_path / "model.log") as url,
        running_program(
            home,
            OPENAI_BASE_URL=url,
            SHIFTBOSS_MODEL="openai:local",
            SHIFTBOSS_OPENAI_TOOLS="written",
            SHIFTBOSS_LANGUAGE="en",
        ) as started,
    ):
        yield started


async def test_a_small_model_plans_a_task_writes_its_file_and_reports(
    shiftboss: ShiftbossProcess,
) -> None:
    async with open_web_page(shiftboss) as page:
        await page.send_message("/run In one step: write three facts about queues into facts.md")
        ending = await final_text(page)

    written = list(shiftboss.home.rglob("facts.md"))
    assert "Task finished" in ending, ending
    assert written
    assert written[0].read_text().strip()


async def final_text(page: WebPageClient) -> str:
    """How it ended, in words. With `pytest -s` it says on the way what was shown and when."""
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        while True:
            frame = await page.next_frame("", timeout=PATIENCE)
            text = " ".join(html.unescape(_TAG.sub(" ", str(frame.get("html", "")))).split())
            sys.stdout.write(f"{time.monotonic() - began:7.1f} s  {text}\n" if text else "")
            if any(end in text for end in _ENDS):
                return text
