"""One life of the program inside the fork server, before the first fork."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

from bot.app.channels import connect_channels
from bot.app.container import open_container
from bot.app.lifecycle import ServiceGroup
from bot.config.settings import load_settings
from tests.compiled_statements import share_compiled_statements
from tests.journeys.program import ShiftbossProcess
from tests.journeys.web_page import open_web_page
from tests.migrated_database import lay_out_store


def warm_up() -> None:
    """Run the program for a message, a command and a task, so that its forks find what each would
    make for itself at first use: compiled SQL, schemas, patterns; a fifth of their CPU. Nothing
    else stays of that life: the home, the threads and the environment are gone."""
    share_compiled_statements()
    before = dict(os.environ)
    try:
        with TemporaryDirectory(prefix="shiftboss-warm-") as folder:
            home = Path(folder) / "home"
            lay_out_store(home)
            os.environ.clear()
            os.environ |= {
                "PATH": before["PATH"],
                "SHIFTBOSS_HOME": str(home),
                "SHIFTBOSS_WEB_PORT": "0",
                "SHIFTBOSS_MEMORY": "{extract: false}",
            }
            asyncio.run(_live())
    finally:
        os.environ.clear()
        os.environ |= before
    gc.collect()
    # A fork has only the thread that forks.
    assert threading.active_count() == 1, threading.enumerate()


async def _live() -> None:
    end = asyncio.Event()
    async with open_container(load_settings()) as core:
        channels = connect_channels(core, leads=True)
        services = (*channels.leading, *channels.serving)
        async with ServiceGroup(services) as app, asyncio.TaskGroup() as group:
            group.create_task(app.run(end))
            try:
                await _talk(channels.web.login_url)
            finally:
                end.set()


async def _talk(address: str) -> None:
    shown = ShiftbossProcess(home=Path(), settings={}, output=[address])
    async with open_web_page(shown) as page:
        for text, answer in (
            ("hello", "without a model"),
            ("/list", "Tasks"),
            ('/run write "hello" to a.txt', "Task finished"),
        ):
            await page.send_message(text)
            await page.next_frame("", answer)
