"""The Bot API library costs memory and time: only a channel in use may load it."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import sys
import bot.transports.telegram.transport
import cards.render.telegram
heavy = ("telegram", "telegramify_markdown", "httpx", "markdown_it")
print(",".join(n for n in heavy if n in sys.modules))
"""


def test_naming_the_channel_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""
